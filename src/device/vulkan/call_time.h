// When a call ends: by the GPU's timestamps afterwards, by the last call of its form beforehand.
#pragma once

#include <cstdint>

namespace tyto::vulkan {

// Ticks from one timestamp to a later one. A queue's counter has `valid_bits` bits (36 on some
// GPUs) and wraps around; the bits above them mean nothing. 0 bits: the queue has no timestamps.
uint64_t ticks_between(uint64_t first, uint64_t last, uint32_t valid_bits);

// How long to sleep before the next look at the fence, `elapsed_ns` after the submission of a call
// whose form took `expected_ns` last time; 0: the end is near, so poll and then wait. A call that
// ends early is noticed at most kLongestNap later, or a 32nd of the time it took.
constexpr uint64_t kLongestNap = 250'000;
uint64_t nap_ns(uint64_t elapsed_ns, uint64_t expected_ns);

}  // namespace tyto::vulkan
