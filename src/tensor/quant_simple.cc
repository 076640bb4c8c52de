// Encoding the types with one scale per 32 values: the scale follows from the extreme values, and
// every code is the nearest one. The arithmetic is the usual one step for step, so that a file made
// here is the file other tools make (bit for bit, where the scale fits an f16). Built with fused
// multiply-add, a rare tie would round the other way. Where importance is known the scale is
// searched for instead.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "tensor/float16.h"
#include "tensor/quant_blocks.h"
#include "tensor/quant_fit.h"

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

// What a block stores beside its codes. A symmetric type has no min.
struct ScaleAndMin {
  float scale = 0;
  float min = 0;
};

// The extreme value gets the lowest code, which has no positive counterpart, so its sign decides
// the sign of the scale.
ScaleAndMin spanning_symmetric(const float* in, int bits) {
  return {extreme(in) / -static_cast<float>(1 << (bits - 1))};
}

ScaleAndMin spanning_affine(const float* in, int bits) {
  const auto [min, max] = range(in);
  return {(max - min) / static_cast<float>((1 << bits) - 1), min};
}

template <typename Block>
void put_codes(const uint8_t (&codes)[kSimpleValues], Block& block) {
  pack_nibbles(codes, block.code);
  if constexpr (requires { block.high; }) pack_fifth_bits(codes, block.high);
}

template <typename Block>
constexpr int kBits = requires(Block block) { block.high; } ? 5 : 4;

template <typename Block>
constexpr bool kIsAffine = requires(Block block) { block.m; };

template <typename Block>
ScaleAndMin spanning(const float* in) {
  return kIsAffine<Block> ? spanning_affine(in, kBits<Block>)
                          : spanning_symmetric(in, kBits<Block>);
}

// The codes nearest to the values for this scale and min.
template <typename Block>
void encode_with(const ScaleAndMin& found, const float* in, Block& block) {
  constexpr float kCodes = 1 << kBits<Block>;
  const float factor = inverse(found.scale);
  uint8_t codes[kSimpleValues];
  for (size_t i = 0; i < kSimpleValues; ++i) {
    const float code = kIsAffine<Block> ? (in[i] - found.min) * factor + 0.5f
                                        : in[i] * factor + (kCodes / 2 + 0.5f);
    codes[i] = static_cast<uint8_t>(truncate(code, kCodes - 1));
  }
  block.d = encode_scale(found.scale);
  if constexpr (kIsAffine<Block>) block.m = encode_scale(found.min);
  put_codes(codes, block);
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

template <typename Block>
void encode_plain(const float* in, std::byte* out, size_t blocks) {
  encode_each<Block>(in, out, blocks, [](const float* values, Block& block) {
    encode_with(spanning<Block>(values), values, block);
  });
}

// ---- importance

// As the block will store it, so that codes are the nearest to what is decoded.
float stored(float value) {
  return to_f32(encode_scale(value));
}

template <typename Block>
ScaleAndMin fitted(const float* in, const float* weights) {
  constexpr float kCodes = 1 << kBits<Block>;
  if constexpr (kIsAffine<Block>) {
    const Fit fit = fit_affine(in, weights, kCodes - 1).best;
    return {stored(fit.scale), stored(-fit.min)};
  } else {
    return {stored(fit_symmetric<kSimpleValues>(in, weights, kCodes / 2, 9, 1).scale)};
  }
}

template <typename Block>
float weighted_error(DType type, const Block& block, const float* in, const float* weights) {
  float decoded[kSimpleValues];
  decode_blocks(type, reinterpret_cast<const std::byte*>(&block), decoded, 1);
  float error = 0;
  for (size_t i = 0; i < kSimpleValues; ++i)
    error += weights[i] * (decoded[i] - in[i]) * (decoded[i] - in[i]);
  return error;
}

// The better of the two, by weighted error: the search knows no min above zero.
template <typename Block>
void encode_weighted(DType type, const float* in, const float* importance, float squares,
                     Block& block) {
  float weights[kSimpleValues];
  for (size_t i = 0; i < kSimpleValues; ++i)
    weights[i] = error_weight(importance[i], in[i], squares);
  encode_with(spanning<Block>(in), in, block);
  Block searched = {};
  encode_with(fitted<Block>(in, weights), in, searched);
  if (weighted_error(type, searched, in, weights) < weighted_error(type, block, in, weights))
    block = searched;
}

template <typename Block>
void encode_weighted_row(DType type, const float* in, const float* importance, std::byte* out,
                         size_t blocks) {
  const size_t count = blocks * kSimpleValues;
  float squares = 0;
  for (size_t i = 0; i < count; ++i) squares += encodable(in[i]) * encodable(in[i]);
  squares /= static_cast<float>(count);
  const float* next = importance;
  encode_each<Block>(in, out, blocks, [&](const float* values, Block& block) {
    encode_weighted(type, values, next, squares, block);
    next += kSimpleValues;
  });
}

}  // namespace

void encode_simple_blocks(DType type, const float* in, std::byte* out, size_t blocks) {
  if (type == DType::q8_0) return encode_each<BlockQ8_0>(in, out, blocks, encode_q8_0);
  if (type == DType::q4_0) return encode_plain<BlockQ4_0>(in, out, blocks);
  if (type == DType::q4_1) return encode_plain<BlockQ4_1>(in, out, blocks);
  if (type == DType::q5_0) return encode_plain<BlockQ5_0>(in, out, blocks);
  if (type == DType::q5_1) return encode_plain<BlockQ5_1>(in, out, blocks);
  TYTO_ASSERT(!"a type of 32-value blocks");
}

void encode_simple_row(DType type, const float* in, const float* importance, std::byte* out,
                       size_t blocks) {
  if (type == DType::q4_0) return encode_weighted_row<BlockQ4_0>(type, in, importance, out, blocks);
  if (type == DType::q4_1) return encode_weighted_row<BlockQ4_1>(type, in, importance, out, blocks);
  if (type == DType::q5_0) return encode_weighted_row<BlockQ5_0>(type, in, importance, out, blocks);
  if (type == DType::q5_1) return encode_weighted_row<BlockQ5_1>(type, in, importance, out, blocks);
  TYTO_ASSERT(!"a type of 4 or 5 bits");
}

}  // namespace tyto
