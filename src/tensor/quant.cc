#include "tensor/quant.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "tensor/float16.h"
#include "tensor/quant_blocks.h"

namespace tyto {
namespace {

template <float (*kToF32)(uint16_t)>
void widen(const std::byte* in, float* out, size_t values) {
  for (size_t i = 0; i < values; ++i) {
    uint16_t half;
    std::memcpy(&half, in + sizeof half * i, sizeof half);
    out[i] = kToF32(half);
  }
}

template <uint16_t (*kFromF32)(float)>
void narrow(const float* in, std::byte* out, size_t values) {
  for (size_t i = 0; i < values; ++i) {
    const uint16_t half = kFromF32(in[i]);
    std::memcpy(out + sizeof half * i, &half, sizeof half);
  }
}

}  // namespace

void dequantize(DType type, std::span<const std::byte> in, std::span<float> out) {
  TYTO_ASSERT(type != DType::i32 && in.size() == row_bytes(type, out.size()));
  if (out.empty()) return;
  if (type == DType::f32)
    std::memcpy(out.data(), in.data(), in.size());
  else if (type == DType::f16)
    widen<f16_to_f32>(in.data(), out.data(), out.size());
  else if (type == DType::bf16)
    widen<bf16_to_f32>(in.data(), out.data(), out.size());
  else
    decode_blocks(type, in.data(), out.data(), out.size() / info(type).block_values);
}

void quantize(DType type, std::span<const float> in, std::span<std::byte> out,
              std::span<const float> importance) {
  TYTO_ASSERT(is_encodable(type) && out.size() == row_bytes(type, in.size()));
  TYTO_ASSERT(importance.empty() || importance.size() == in.size());
  if (in.empty()) return;
  const size_t blocks = in.size() / info(type).block_values;
  if (type == DType::f32)
    std::memcpy(out.data(), in.data(), out.size());
  else if (type == DType::f16)
    narrow<f32_to_f16>(in.data(), out.data(), in.size());
  else if (type == DType::bf16)
    narrow<f32_to_bf16>(in.data(), out.data(), in.size());
  else if (type == DType::q4_k || type == DType::q5_k || type == DType::q6_k)
    encode_k_blocks(type, in.data(), importance.data(), out.data(), blocks);
  else if (type == DType::q8_0 || importance.empty())
    encode_simple_blocks(type, in.data(), out.data(), blocks);
  else
    encode_simple_row(type, in.data(), importance.data(), out.data(), blocks);
}

float largest_encodable(DType type) {
  if (type == DType::f32) return std::numeric_limits<float>::max();
  if (type == DType::bf16) return 0x1.fep127f;
  return kLargestHalf;  // f16's own, or its scales'
}

// How well codes render values, and the search for scales that render them best. Squared errors
// count as much as each value's weight says.

// Adds up in four interleaved lanes, an order of addition that vectorises.
template <size_t N>
float sum_by_lanes(const std::array<float, N>& terms) {
  std::array<float, 4> lanes = {};
  for (size_t i = 0; i < N; i += lanes.size())
    for (size_t lane = 0; lane < lanes.size(); ++lane) lanes[lane] += terms[i + lane];
  return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
}

// The nearest integer in [0, top], as a float; NaN gives 0.
inline float nearest(float value, float top) {
  return static_cast<float>(static_cast<int>(std::min(top, std::max(0.0f, value)) + 0.5f));
}

// Scale and min, what they cost with each code the nearest one, and the sums from which least
// squares finds better ones for the same codes. All sums are weighted.
struct Fit {
  float scale = 0;
  float min = 0;
  float error = std::numeric_limits<float>::infinity();
  float codes = 0;          // sum of code
  float codes_squared = 0;  // sum of code^2
  float products = 0;       // sum of code * value
};

inline void keep_better(Fit& best, const Fit& trial) {
  if (trial.error < best.error) best = trial;
}

// ---- scale * code - min, neither negative, codes in [0, top]

constexpr size_t kAffineValues = 32;

struct SubBlock {
  const float* in;
  const float* weights;
  float weight;  // sum of weights
  float sum;     // the weighted sum of the values
  Fit best;
};

Fit try_affine(const float* in, const float* weights, float scale, float min, float top);

// Fits 32 values as if scale and min could be any numbers.
SubBlock fit_affine(const float* in, const float* weights, float top);

// ---- scale * code, of either sign, codes in [-zero, zero - 1]

// Not inlined: inside the searches gcc no longer vectorises it.
template <size_t N>
[[gnu::noinline]] Fit try_symmetric(const float* in, const float* weights, float scale,
                                    float zero) {
  const float factor = inverse(scale);
  std::array<float, N> error, codes_squared, products;
#pragma GCC unroll 1
  for (size_t i = 0; i < N; ++i) {
    const float code = nearest(in[i] * factor + zero, 2 * zero - 1) - zero;
    const float residue = scale * code - in[i];
    const float weighted = weights[i] * code;
    error[i] = weights[i] * (residue * residue);
    codes_squared[i] = weighted * code;
    products[i] = weighted * in[i];
  }
  return {scale, 0, sum_by_lanes(error), 0, sum_by_lanes(codes_squared), sum_by_lanes(products)};
}

// Starts from step sizes around the one that spans the values, `reach` tenths of a code to each
// side.
template <size_t N>
Fit fit_symmetric(const float* in, const float* weights, float zero, int reach, int stride) {
  float extreme = 0;
  for (size_t i = 0; i < N; ++i)
    if (std::fabs(in[i]) > std::fabs(extreme)) extreme = in[i];
  Fit best = try_symmetric<N>(in, weights, extreme / -zero, zero);
  if (extreme == 0) return best;
  for (int step = -reach; step <= reach; step += stride) {
    const float scale = -extreme / (zero + 0.1f * static_cast<float>(step));
    const Fit start = try_symmetric<N>(in, weights, scale, zero);
    if (start.codes_squared <= 0) continue;
    keep_better(best, try_symmetric<N>(in, weights, start.products / start.codes_squared, zero));
  }
  return best;
}

// What an error counts when a column's importance is known: more in large values, whose errors are
// larger, relative to the spread of their neighbours. A column that was never used counts little,
// not nothing. `squares` is the mean square of the neighbours.
inline float error_weight(float importance, float value, float squares) {
  constexpr float kLeast = 0x1p-20f;
  return std::max(importance, kLeast) * std::sqrt(squares + value * value);
}

// Not inlined: inside the searches below gcc no longer vectorises it.
[[gnu::noinline]] Fit try_affine(const float* in, const float* weights, float scale, float min,
                                 float top) {
  const float factor = inverse(scale);
  std::array<float, kAffineValues> error, codes, codes_squared, products;
  for (size_t i = 0; i < kAffineValues; ++i) {
    const float code = nearest((in[i] + min) * factor, top);
    const float residue = scale * code - min - in[i];
    const float weighted = weights[i] * code;
    error[i] = weights[i] * (residue * residue);
    codes[i] = weighted;
    codes_squared[i] = weighted * code;
    products[i] = weighted * in[i];
  }
  return {scale,
          min,
          sum_by_lanes(error),
          sum_by_lanes(codes),
          sum_by_lanes(codes_squared),
          sum_by_lanes(products)};
}

namespace {

// Least squares for the codes of `fit`, the min kept from going negative.
Fit refit(const SubBlock& sub, const Fit& fit, float top) {
  const float determinant = sub.weight * fit.codes_squared - fit.codes * fit.codes;
  if (determinant <= 0) return fit;
  float scale = (sub.weight * fit.products - fit.codes * sub.sum) / determinant;
  float min = (scale * fit.codes - sub.sum) / sub.weight;
  if (min < 0) {
    min = 0;
    scale = fit.products / fit.codes_squared;
  }
  if (!(scale > 0)) return fit;
  return try_affine(sub.in, sub.weights, scale, min, top);
}

}  // namespace

// Starts from several step sizes around the one that spans the values, since clipping an outlier
// often pays.
SubBlock fit_affine(const float* in, const float* weights, float top) {
  float low = 0, high = in[0], sum = 0, weight = 0;
  for (size_t i = 0; i < kAffineValues; ++i) {
    low = std::min(low, in[i]);
    high = std::max(high, in[i]);
    sum += weights[i] * in[i];
    weight += weights[i];
  }
  SubBlock sub = {in, weights, weight, sum, {}};
  sub.best = try_affine(in, weights, (high - low) / top, -low, top);
  if (high <= low) return sub;
  for (int step = -4; step <= 12; step += 2) {
    const float scale = (high - low) / (top + 0.1f * static_cast<float>(step));
    const Fit start = try_affine(in, weights, scale, -low, top);
    keep_better(sub.best, refit(sub, start, top));
  }
  keep_better(sub.best, refit(sub, sub.best, top));
  return sub;
}

// Encoding the types with one scale per 32 values: the scale follows from the extreme values, and
// every code is the nearest one. The arithmetic is the usual one step for step, so that a file made
// here is the file other tools make (bit for bit, where the scale fits an f16). Built with fused
// multiply-add, a rare tie would round the other way. Where importance is known the scale is
// searched for instead.

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

// Encoding the types with two levels of scales. The format fixes how a block decodes, not how its
// scales are found; here they minimise the squared error, weighted where importance is known: each
// sub-block is fitted on its own, its scale is rounded to what the block can store, and the block's
// own scales are then fitted to that.

namespace {

using Weights = std::array<float, kSuperValues>;

constexpr Weights kAllTheSame = [] {
  Weights weights = {};
  for (float& weight : weights) weight = 1;
  return weights;
}();

// ---- q4_k, q5_k: scale * code - min, neither negative

constexpr size_t kAffineSubs = 8;
constexpr float kSixBits = 63;

struct AffineBlock {
  float d = 0;
  float dmin = 0;
  float error = std::numeric_limits<float>::infinity();
  std::array<uint8_t, kAffineSubs> scale = {};
  std::array<uint8_t, kAffineSubs> min = {};
  std::array<Fit, kAffineSubs> fit = {};
};

// Chooses for every sub-block the storable scale and min that render it best, near its own fit.
AffineBlock store_affine(const std::array<SubBlock, kAffineSubs>& subs, float d, float dmin,
                         float top) {
  AffineBlock block;
  block.d = to_f32(encode_scale(d));
  block.dmin = to_f32(encode_scale(dmin));
  block.error = 0;
  for (size_t s = 0; s < kAffineSubs; ++s) {
    const float scale = nearest(subs[s].best.scale * inverse(block.d), kSixBits);
    const float min = nearest(subs[s].best.min * inverse(block.dmin), kSixBits);
    for (float a = std::max(0.0f, scale - 1); a <= std::min(kSixBits, scale + 1); ++a) {
      for (float b = std::max(0.0f, min - 1); b <= std::min(kSixBits, min + 1); ++b) {
        const Fit trial = try_affine(subs[s].in, subs[s].weights, block.d * a, block.dmin * b, top);
        if (trial.error >= block.fit[s].error) continue;
        block.fit[s] = trial;
        block.scale[s] = static_cast<uint8_t>(a);
        block.min[s] = static_cast<uint8_t>(b);
      }
    }
    block.error += block.fit[s].error;
  }
  return block;
}

// Least squares for d and dmin, all codes, scales and mins staying as they are.
AffineBlock refit_block(const std::array<SubBlock, kAffineSubs>& subs, const AffineBlock& block,
                        float top) {
  double aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;
  for (size_t s = 0; s < kAffineSubs; ++s) {
    const double a = block.scale[s], b = block.min[s];
    aa += a * a * block.fit[s].codes_squared;
    ab += a * b * block.fit[s].codes;
    bb += b * b * subs[s].weight;
    ax += a * block.fit[s].products;
    bx += b * subs[s].sum;
  }
  const double determinant = aa * bb - ab * ab;
  if (determinant <= 0) return block;
  const double d = (ax * bb - ab * bx) / determinant;
  const double dmin = (ab * ax - aa * bx) / determinant;
  if (!(d > 0 && d < kLargestHalf && dmin >= 0 && dmin < kLargestHalf)) return block;
  return store_affine(subs, static_cast<float>(d), static_cast<float>(dmin), top);
}

AffineBlock fit_affine_block(const float* in, const Weights& weights, float top) {
  std::array<SubBlock, kAffineSubs> subs;
  float max_scale = 0, max_min = 0;
  for (size_t s = 0; s < kAffineSubs; ++s) {
    subs[s] = fit_affine(in + s * kAffineValues, weights.data() + s * kAffineValues, top);
    max_scale = std::max(max_scale, subs[s].best.scale);
    max_min = std::max(max_min, subs[s].best.min);
  }
  const AffineBlock first = store_affine(subs, max_scale / kSixBits, max_min / kSixBits, top);
  const AffineBlock second = refit_block(subs, first, top);
  return second.error < first.error ? second : first;
}

void pack_scales(const AffineBlock& block, PackedScales& out) {
  for (size_t i = 0; i < 4; ++i) {
    const uint8_t scale = block.scale[i + 4], min = block.min[i + 4];
    out[i] = static_cast<uint8_t>(block.scale[i] | ((scale >> 4) << 6));
    out[i + 4] = static_cast<uint8_t>(block.min[i] | ((min >> 4) << 6));
    out[i + 8] = static_cast<uint8_t>((scale & 15) | ((min & 15) << 4));
  }
}

// The codes the block's fits imply, in the order of the values.
std::array<uint8_t, kSuperValues> affine_codes(const float* in, const AffineBlock& block,
                                               float top) {
  std::array<uint8_t, kSuperValues> codes;
  for (size_t i = 0; i < kSuperValues; ++i) {
    const Fit& fit = block.fit[i / kAffineValues];
    codes[i] = static_cast<uint8_t>(nearest((in[i] + fit.min) * inverse(fit.scale), top));
  }
  return codes;
}

template <typename Block>
void encode_affine(const float* in, const Weights& weights, float top, Block& out) {
  const AffineBlock block = fit_affine_block(in, weights, top);
  out.d = encode_scale(block.d);
  out.dmin = encode_scale(block.dmin);
  pack_scales(block, out.scales);
  const std::array<uint8_t, kSuperValues> codes = affine_codes(in, block, top);
  for (size_t i = 0; i < 128; ++i) {
    const uint8_t* pair = codes.data() + 64 * (i / 32) + i % 32;
    out.code[i] = static_cast<uint8_t>((pair[0] & 15) | ((pair[32] & 15) << 4));
  }
  if constexpr (requires { out.high; }) {
    for (size_t i = 0; i < kSuperValues; ++i) {
      const int bit = (codes[i] >> 4) << (i / 32);
      out.high[i % 32] = static_cast<uint8_t>(out.high[i % 32] | bit);
    }
  }
}

// ---- q6_k: scale * (code - 32), of either sign

constexpr size_t kSymmetricValues = 16;
constexpr size_t kSymmetricSubs = 16;
constexpr float kCodeZero = 32;

struct SymmetricBlock {
  float d = 0;
  float error = std::numeric_limits<float>::infinity();
  std::array<int8_t, kSymmetricSubs> scale = {};
  std::array<Fit, kSymmetricSubs> fit = {};
};

SymmetricBlock store_symmetric(const float* in, const Weights& weights,
                               const std::array<Fit, kSymmetricSubs>& fits, float d) {
  SymmetricBlock block;
  block.d = to_f32(encode_scale(d));
  block.error = 0;
  for (size_t s = 0; s < kSymmetricSubs; ++s) {
    const size_t at = s * kSymmetricValues;
    const float scale = nearest(fits[s].scale * inverse(block.d) + 128, 255) - 128;
    for (float a = std::max(-128.0f, scale - 1); a <= std::min(127.0f, scale + 1); ++a) {
      const Fit trial =
          try_symmetric<kSymmetricValues>(in + at, weights.data() + at, block.d * a, kCodeZero);
      if (trial.error >= block.fit[s].error) continue;
      block.fit[s] = trial;
      block.scale[s] = static_cast<int8_t>(a);
    }
    block.error += block.fit[s].error;
  }
  return block;
}

SymmetricBlock fit_symmetric_block(const float* in, const Weights& weights) {
  std::array<Fit, kSymmetricSubs> fits;
  float extreme = 0;
  for (size_t s = 0; s < kSymmetricSubs; ++s) {
    const size_t at = s * kSymmetricValues;
    fits[s] = fit_symmetric<kSymmetricValues>(in + at, weights.data() + at, kCodeZero, 6, 3);
    if (std::fabs(fits[s].scale) > std::fabs(extreme)) extreme = fits[s].scale;
  }
  const SymmetricBlock first = store_symmetric(in, weights, fits, extreme / -128);
  double squares = 0, products = 0;
  for (size_t s = 0; s < kSymmetricSubs; ++s) {
    const double a = first.scale[s];
    squares += a * a * first.fit[s].codes_squared;
    products += a * first.fit[s].products;
  }
  if (squares <= 0) return first;
  const SymmetricBlock second =
      store_symmetric(in, weights, fits, static_cast<float>(products / squares));
  return second.error < first.error ? second : first;
}

void encode_symmetric(const float* in, const Weights& weights, BlockQ6K& out) {
  const SymmetricBlock block = fit_symmetric_block(in, weights);
  out.d = encode_scale(block.d);
  std::memcpy(out.scale, block.scale.data(), sizeof out.scale);
  for (size_t i = 0; i < kSuperValues; ++i) {
    const float factor = inverse(block.fit[i / kSymmetricValues].scale);
    const int code = static_cast<int>(nearest(in[i] * factor + kCodeZero, 2 * kCodeZero - 1));
    const size_t half = i / 128, quarter = i / 32 % 4;
    uint8_t& low = out.low[64 * half + 32 * (quarter % 2) + i % 32];
    uint8_t& high = out.high[32 * half + i % 32];
    low = static_cast<uint8_t>(low | ((code & 15) << (4 * (quarter / 2))));
    high = static_cast<uint8_t>(high | ((code >> 4) << (2 * quarter)));
  }
}

// ---- importance

// Weights for the block of `values` whose columns' importance begins at `importance`, or the same
// for all where that is null. q6_k goes by importance alone, as ggml's does.
Weights weights_of(DType type, const float* values, const float* importance) {
  if (importance == nullptr) return kAllTheSame;
  float squares = 0;
  for (size_t i = 0; i < kSuperValues; ++i) squares += values[i] * values[i];
  squares *= 2.0f / kSuperValues;
  Weights weights;
  for (size_t i = 0; i < kSuperValues; ++i)
    weights[i] = type == DType::q6_k ? error_weight(importance[i], 0, 1)
                                     : error_weight(importance[i], values[i], squares);
  return weights;
}

}  // namespace

void encode_k_blocks(DType type, const float* in, const float* importance, std::byte* out,
                     size_t blocks) {
  const float* next = importance;
  const auto weights = [&](const float* values) {
    const Weights result = weights_of(type, values, next);
    if (next != nullptr) next += kSuperValues;
    return result;
  };
  if (type == DType::q4_k)
    return encode_each<BlockQ4K>(in, out, blocks, [&](const float* values, BlockQ4K& block) {
      encode_affine(values, weights(values), 15, block);
    });
  if (type == DType::q5_k)
    return encode_each<BlockQ5K>(in, out, blocks, [&](const float* values, BlockQ5K& block) {
      encode_affine(values, weights(values), 31, block);
    });
  if (type == DType::q6_k)
    return encode_each<BlockQ6K>(in, out, blocks, [&](const float* values, BlockQ6K& block) {
      encode_symmetric(values, weights(values), block);
    });
  TYTO_ASSERT(!"a type of 256-value blocks");
}

Int8RowScale int8_row_scale(float largest_magnitude) {
  const float scale = largest_magnitude / 127.0f;
  if (scale < 0x1p-126f) return {0.0f, 0.0f};  // its inverse could be infinite
  return {scale, 127.0f / largest_magnitude};
}

// To nearest: the sum is never negative, and truncated.
void encode_int8(std::span<const float> values, float inverse, int8_t* __restrict codes) {
  const float* __restrict in = values.data();
  for (size_t i = 0; i < values.size(); ++i)
    codes[i] = static_cast<int8_t>(static_cast<int32_t>(in[i] * inverse + 127.5f) - 127);
}

}  // namespace tyto
