// Conversions between f32 and the two 16-bit floats, round to nearest even. Portable, exact and
// independent of flush-to-zero modes; selects instead of branches, so that loops over them become
// vector code on any target.
#pragma once

#include <bit>
#include <cstdint>

namespace tyto {

inline float bf16_to_f32(uint16_t value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

inline uint16_t f32_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t quiet = (bits >> 16) | 0x40u;  // rounding could carry a NaN into infinity
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

inline float f16_to_f32(uint16_t value) {
  constexpr uint32_t kBias = (127u - 15u) << 23;  // between the two exponent biases
  const uint32_t sign = (value & 0x8000u) << 16;
  const int32_t magnitude = value & 0x7fff;
  const uint32_t shifted = static_cast<uint32_t>(magnitude) << 13;
  const uint32_t subnormal = std::bit_cast<uint32_t>(static_cast<float>(magnitude) * 0x1p-24f);
  const uint32_t normal = shifted + (magnitude >= 0x7c00 ? 2 * kBias : kBias);  // or inf, NaN
  const uint32_t mask = magnitude < 0x400 ? ~0u : 0u;  // a select here would become a branch
  return std::bit_cast<float>(sign | (subnormal & mask) | (normal & ~mask));
}

inline uint16_t f32_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  // As a signed number: SSE2 has no unsigned comparison.
  const int32_t magnitude = static_cast<int32_t>(bits & 0x7fffffffu);
  // Adding 0.5 puts an f16 subnormal's last place at the f32 adder's, which then rounds it.
  const float half = std::bit_cast<float>(magnitude) + 0.5f;
  const int32_t subnormal = std::bit_cast<int32_t>(half) - 0x3f000000;
  const uint32_t rounded = (bits & 0x7fffffffu) + 0xfffu + ((bits >> 13) & 1u);
  const int32_t normal = static_cast<int32_t>((rounded - 0x38000000u) >> 13);
  const int32_t nan = 0x7e00 | ((magnitude >> 13) & 0x3ff);
  int32_t result = magnitude < 0x38800000 ? subnormal : normal;  // 2^-14
  result = magnitude >= 0x47800000 ? 0x7c00 : result;            // 65536
  result = magnitude > 0x7f800000 ? nan : result;
  return static_cast<uint16_t>(sign | static_cast<uint32_t>(result));
}

// Turning a matrix of 16-bit values: what was a row becomes a column.

// out[c * out_stride + r] = in[r * in_stride + c], strides in values. Quickest where `rows` and
// `cols` are multiples of 8.
void transpose_16bit(const uint16_t* in, uint64_t in_stride, uint64_t rows, uint64_t cols,
                     uint16_t* out, uint64_t out_stride);

}  // namespace tyto
