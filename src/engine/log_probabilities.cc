#include "engine/log_probabilities.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tyto {

LogProbabilities log_probabilities(std::span<const float> logits, Token chosen, uint32_t count) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  const float log_sum = largest + static_cast<float>(std::log(sum));
  const auto value = [&](Token token) { return logits[static_cast<size_t>(token)] - log_sum; };

  LogProbabilities result{.chosen = value(chosen)};
  if (count == 0) return result;
  std::vector<Token> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  const auto end =
      tokens.begin() + static_cast<std::ptrdiff_t>(std::min<size_t>(count, tokens.size()));
  std::partial_sort(tokens.begin(), end, tokens.end(), [&](Token a, Token b) {
    const float of_a = logits[static_cast<size_t>(a)], of_b = logits[static_cast<size_t>(b)];
    return of_a != of_b ? of_a > of_b : a < b;
  });
  for (auto at = tokens.begin(); at != end; ++at) result.top.push_back({*at, value(*at)});
  return result;
}

}  // namespace tyto
