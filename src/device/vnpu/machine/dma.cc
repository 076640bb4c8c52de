#include "device/vnpu/machine/dma.h"

#include <fmt/format.h>

#include <algorithm>

namespace tyto::vxrt {
namespace {

constexpr uint64_t kWordBytes = 4;  // granularity of every transfer
constexpr uint64_t kMostStride = 1'048'576;
constexpr uint64_t kMostWraps[] = {63, 1023, 1023, 1023};  // outermost first
constexpr uint64_t kMostDescriptors = 255;                 // repeats of a task

// The largest wrap below the limit that divides a dimension: what the compiler cuts it by. A prime
// above the limit is walked one by one.
uint64_t largest_wrap(uint64_t size, uint64_t most) {
  for (uint64_t wrap = std::min(size, most); wrap > 1; --wrap)
    if (size % wrap == 0) return wrap;
  return 1;
}

// Descriptors after the compiler has cut every dimension to wraps that fit and given what does not
// fit into four dimensions a descriptor per step.
uint64_t descriptors(const Pattern& pattern) {
  uint64_t count = 1;
  size_t used = 0;  // dimensions of one descriptor, from the innermost
  for (size_t d = pattern.dims.size(); d-- > 0;) {
    uint64_t size = pattern.dims[d].size;
    if (pattern.dims[d].stride > kMostStride) {  // cannot be stepped: an offset for each
      count *= size;
      continue;
    }
    while (size > 1 && used < std::size(kMostWraps)) {
      const uint64_t wrap = largest_wrap(size, kMostWraps[std::size(kMostWraps) - 1 - used]);
      if (wrap == 1) break;
      size /= wrap;
      ++used;
    }
    count *= size;
    if (count > kMostDescriptors) return count;
  }
  return count;
}

}  // namespace

// The compiler merges dimensions that continue each other, cuts wraps above {64, 1024, 1024, 1024}
// into two dimensions, and unrolls outer dimensions, or strides beyond 2^20, into descriptors of
// their own; none of that is a problem. A contiguous stretch has a length register of its own and
// no limit at all. What is left: words of four bytes, and a number of descriptors that a task's
// repeat count holds.
std::optional<std::string> dma_problem(const Pattern& pattern, DType dtype) {
  const Pattern walked = simplified(pattern);
  const uint64_t bytes = row_bytes(dtype, info(dtype).block_values) / info(dtype).block_values;
  if (info(dtype).block_values == 1 && walked.offset * bytes % kWordBytes != 0)
    return fmt::format("begins at value {}, inside a word of {} bytes", walked.offset, kWordBytes);
  if (walked.is_contiguous()) return std::nullopt;
  const Pattern::Dim& inner = walked.dims.back();
  if (bytes < kWordBytes) {
    if (inner.stride != 1)
      return fmt::format("takes every {}th value of {} bytes: a DMA moves words of {}",
                         inner.stride, bytes, kWordBytes);
    if (inner.size * bytes % kWordBytes != 0)
      return fmt::format("has runs of {} values, not whole words of {} bytes", inner.size,
                         kWordBytes);
    for (size_t d = 0; d + 1 < walked.dims.size(); ++d)
      if (walked.dims[d].stride * bytes % kWordBytes != 0)
        return fmt::format("has a stride of {} values, not whole words of {} bytes",
                           walked.dims[d].stride, kWordBytes);
  }
  if (const uint64_t count = descriptors(walked); count > kMostDescriptors)
    return fmt::format("needs more than {} descriptors", kMostDescriptors);
  return std::nullopt;
}

}  // namespace tyto::vxrt
