#include "llama/logits.h"

#include <cmath>

#include <fmt/format.h>

#include "model/model.h"

namespace tyto {
namespace {

// Devices round their exponentials and sums.
constexpr float kSlack = 1e-3f;

}  // namespace

std::optional<std::string> problem_of(const TopKRow& row, size_t vocab) {
  for (size_t i = 0; i < row.count(); ++i) {
    const int32_t index = row.index(i);
    if (index < 0 || static_cast<size_t>(index) >= vocab)
      return fmt::format("picked token {} of a vocabulary of {}", index, vocab);
    if (!std::isfinite(row.value(i))) return fmt::format("picked a logit of {}", row.value(i));
    if (i == 0) continue;
    const float before = row.value(i - 1);
    const bool is_sorted =
        before > row.value(i) || (before == row.value(i) && row.index(i - 1) < index);
    if (!is_sorted) return fmt::format("picked candidates {} and {} in the wrong order", i - 1, i);
  }
  const float best = row.value(0), slack = kSlack * (1 + std::fabs(best));
  const float most = best + std::log(static_cast<float>(vocab));
  if (!(row.log_sum() >= best - slack && row.log_sum() <= most + slack))
    return fmt::format("says that the logits have a log-sum of {}, and the best is {}",
                       row.log_sum(), best);
  return std::nullopt;
}

void fail_non_finite(std::string_view results, const Model& model, ErrorCode code,
                     const std::string& who) {
  if (const auto weight = non_finite_weight(model)) throw *weight;
  throw Error(code, who, fmt::format("the {} are not finite, though all weights are", results),
              code == ErrorCode::device ? "see --on-device-error"
                                        : "the weights are too large: a sum has overflowed");
}

}  // namespace tyto
