#include "device/cpu/numerics.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace tyto::cpu {
namespace {

// Selects, no branches: one block is one vector.
void round_block(float* values, size_t count) {
  uint32_t largest = 0;  // magnitudes as integers order like the floats
  for (size_t i = 0; i < count; ++i)
    largest = std::max(largest, std::bit_cast<uint32_t>(values[i]) & 0x7fffffffu);
  const uint32_t exponent = largest >> 23;
  if (exponent == 0xff) return;  // infinities and NaN stay what they are
  // The largest value has its leading bit at 2^6 of a mantissa. Below 2^-120 all are zero.
  if (exponent < 7) return std::fill(values, values + count, 0.0f);
  const float step = std::bit_cast<float>((exponent - 6) << 23);
  const float inverse = 1.0f / step;
  for (size_t i = 0; i < count; ++i) {
    const float mantissa = std::nearbyint(values[i] * inverse);
    values[i] = std::clamp(mantissa, -128.0f, 127.0f) * step;
  }
}

}  // namespace

void round_to_bfp16(float* values, size_t count) {
  for (size_t i = 0; i < count; i += kBfp16Block)
    round_block(values + i, std::min(kBfp16Block, count - i));
}

std::vector<float> in_blocks(const float* values, size_t rows, size_t width, ThreadPool& pool) {
  std::vector<float> result(values, values + rows * width);
  pool.parallel_for(rows, 16, [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) round_to_bfp16(result.data() + row * width, width);
  });
  return result;
}

}  // namespace tyto::cpu
