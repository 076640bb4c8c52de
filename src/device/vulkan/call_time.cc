#include "device/vulkan/call_time.h"

#include <algorithm>

namespace tyto::vulkan {

uint64_t ticks_between(uint64_t first, uint64_t last, uint32_t valid_bits) {
  if (valid_bits == 0) return 0;
  const uint64_t mask = valid_bits >= 64 ? UINT64_MAX : (uint64_t{1} << valid_bits) - 1;
  return (last - first) & mask;
}

uint64_t nap_ns(uint64_t elapsed_ns, uint64_t expected_ns) {
  constexpr uint64_t kMargin = 15'000;  // a sleeping thread wakes up about that late
  if (expected_ns <= 2 * kMargin || elapsed_ns >= expected_ns - kMargin) return 0;
  return std::min(expected_ns - kMargin - elapsed_ns, std::max(kLongestNap, elapsed_ns / 32));
}

}  // namespace tyto::vulkan
