#include "device/cpu/top_k.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace tyto::cpu {

void pick_best(std::span<const float> logits, std::span<int32_t> row) {
  // What is no number has no order: it counts as the lowest there is.
  const auto value = [&](int32_t index) {
    const float logit = logits[static_cast<size_t>(index)];
    return std::isnan(logit) ? -std::numeric_limits<float>::infinity() : logit;
  };
  thread_local std::vector<int32_t> order;
  order.resize(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const size_t count = row.size() / 2 - 1;
  std::partial_sort(
      order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
      [&](int32_t a, int32_t b) { return value(a) != value(b) ? value(a) > value(b) : a < b; });
  for (size_t i = 0; i < count; ++i) {
    row[2 * i] = std::bit_cast<int32_t>(value(order[i]));
    row[2 * i + 1] = order[i];
  }
  const float largest = value(order.front());
  double sum = 0;
  int32_t not_finite = 0;
  for (const float logit : logits) {
    sum += std::exp(logit - largest);
    not_finite += std::isfinite(logit) ? 0 : 1;
  }
  row[2 * count] = not_finite;
  row[2 * count + 1] = std::bit_cast<int32_t>(largest + static_cast<float>(std::log(sum)));
}

}  // namespace tyto::cpu
