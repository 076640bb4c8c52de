// Encoding the types with one scale per 32 values: the scale follows from the extreme values, and
// every code is the nearest one. The arithmetic is the usual one step for step, so that a file made
// here is the file other tools make (bit for bit, where the scale fits an f16). Built with fused
// multiply-add, a rare tie would round the other way.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "tensor/float16.h"
#include "tensor/quant_blocks.h"

namespace tyto {
namespace {

// Truncates into [0, top]; NaN (0 times an infinite inverse) gives 0.
int truncate(float value, float top) {
  return static_cast<int>(std::min(top, std::max(0.0f, value)));
}

// The value of largest magnitude, sign included; the first of equals.
float extreme(const float* in) {
  float largest = 0.0f, value = 0.0f;
  for (size_t i = 0; i < kSimpleValues; ++i) {
    if (std::fabs(in[i]) <= largest) continue;
    largest = std::fabs(in[i]);
    value = in[i];
  }
  return value;
}

struct Range {
  float min;
  float max;
};

Range range(const float* in) {
  Range result = {in[0], in[0]};
  for (size_t i = 1; i < kSimpleValues; ++i) {
    result.min = std::min(result.min, in[i]);
    result.max = std::max(result.max, in[i]);
  }
  return result;
}

void pack_nibbles(const uint8_t (&codes)[kSimpleValues], Nibbles32& out) {
  for (size_t i = 0; i < 16; ++i)
    out[i] = static_cast<uint8_t>((codes[i] & 15) | ((codes[i + 16] & 15) << 4));
}

void pack_fifth_bits(const uint8_t (&codes)[kSimpleValues], std::array<uint8_t, 4>& out) {
  for (size_t byte = 0; byte < 4; ++byte) {
    out[byte] = 0;
    for (size_t bit = 0; bit < 8; ++bit)
      out[byte] = static_cast<uint8_t>(out[byte] | ((codes[8 * byte + bit] >> 4) << bit));
  }
}

// Scale and codes around zero: the extreme value gets the lowest code, which has no positive
// counterpart, so its sign decides the sign of the scale.
Half encode_symmetric(const float* in, int bits, uint8_t (&codes)[kSimpleValues]) {
  const float half = static_cast<float>(1 << (bits - 1));
  const float scale = extreme(in) / -half;
  const float factor = inverse(scale);
  for (size_t i = 0; i < kSimpleValues; ++i)
    codes[i] = static_cast<uint8_t>(truncate(in[i] * factor + (half + 0.5f), 2 * half - 1));
  return encode_scale(scale);
}

struct ScaleAndMin {
  Half scale;
  Half min;
};

ScaleAndMin encode_affine(const float* in, int bits, uint8_t (&codes)[kSimpleValues]) {
  const float top = static_cast<float>((1 << bits) - 1);
  const auto [min, max] = range(in);
  const float scale = (max - min) / top;
  const float factor = inverse(scale);
  for (size_t i = 0; i < kSimpleValues; ++i)
    codes[i] = static_cast<uint8_t>(truncate((in[i] - min) * factor + 0.5f, top));
  return {encode_scale(scale), encode_scale(min)};
}

void encode_q8_0(const float* in, BlockQ8_0& block) {
  const float scale = std::fabs(extreme(in)) / 127;
  const float factor = inverse(scale);
  for (size_t i = 0; i < kSimpleValues; ++i) {
    const float code = std::round(in[i] * factor);
    block.code[i] = static_cast<int8_t>(truncate(code + 127, 254) - 127);
  }
  block.d = encode_scale(scale);
}

void encode_q4_0(const float* in, BlockQ4_0& block) {
  uint8_t codes[kSimpleValues];
  block.d = encode_symmetric(in, 4, codes);
  pack_nibbles(codes, block.code);
}

void encode_q5_0(const float* in, BlockQ5_0& block) {
  uint8_t codes[kSimpleValues];
  block.d = encode_symmetric(in, 5, codes);
  pack_nibbles(codes, block.code);
  pack_fifth_bits(codes, block.high);
}

void encode_q4_1(const float* in, BlockQ4_1& block) {
  uint8_t codes[kSimpleValues];
  const ScaleAndMin found = encode_affine(in, 4, codes);
  block.d = found.scale;
  block.m = found.min;
  pack_nibbles(codes, block.code);
}

void encode_q5_1(const float* in, BlockQ5_1& block) {
  uint8_t codes[kSimpleValues];
  const ScaleAndMin found = encode_affine(in, 5, codes);
  block.d = found.scale;
  block.m = found.min;
  pack_nibbles(codes, block.code);
  pack_fifth_bits(codes, block.high);
}

}  // namespace

void encode_simple_blocks(DType type, const float* in, std::byte* out, size_t blocks) {
  switch (type) {
    case DType::q8_0:
      return encode_each<BlockQ8_0>(in, out, blocks, encode_q8_0);
    case DType::q4_0:
      return encode_each<BlockQ4_0>(in, out, blocks, encode_q4_0);
    case DType::q4_1:
      return encode_each<BlockQ4_1>(in, out, blocks, encode_q4_1);
    case DType::q5_0:
      return encode_each<BlockQ5_0>(in, out, blocks, encode_q5_0);
    case DType::q5_1:
      return encode_each<BlockQ5_1>(in, out, blocks, encode_q5_1);
    default:
      TYTO_ASSERT(!"a type of 32-value blocks");
  }
}

}  // namespace tyto
