// Encoding the types with two levels of scales. The format fixes how a block decodes, not how its
// scales are found; here they minimise the squared error: each sub-block is fitted on its own, its
// scale is rounded to what the block can store, and the block's own scales are then fitted to that.
#include <array>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "tensor/float16.h"
#include "tensor/quant_blocks.h"

namespace tyto {
namespace {

// Adds up in four interleaved lanes, an order of addition that vectorises.
template <size_t N>
float sum_by_lanes(const std::array<float, N>& terms) {
  std::array<float, 4> lanes = {};
  for (size_t i = 0; i < N; i += lanes.size())
    for (size_t lane = 0; lane < lanes.size(); ++lane) lanes[lane] += terms[i + lane];
  return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
}

// The nearest integer in [0, top], as a float; NaN gives 0.
float nearest(float value, float top) {
  return static_cast<float>(static_cast<int>(std::min(top, std::max(0.0f, value)) + 0.5f));
}

constexpr size_t kAffineValues = 32;
constexpr size_t kAffineSubs = 8;
constexpr float kSixBits = 63;

// How well codes in [0, top] render the values as scale * code - min, each code the nearest one;
// and the sums from which least squares finds a better scale and min for the same codes.
struct Fit {
  float scale = 0;
  float min = 0;
  float error = std::numeric_limits<float>::infinity();
  float codes = 0;          // sum of code
  float codes_squared = 0;  // sum of code^2
  float products = 0;       // sum of code * value
};

// Not inlined: inside the searches below gcc no longer vectorises it.
[[gnu::noinline]] Fit try_affine(const float* in, float scale, float min, float top) {
  const float factor = inverse(scale);
  std::array<float, kAffineValues> error, codes, codes_squared, products;
  for (size_t i = 0; i < kAffineValues; ++i) {
    const float code = nearest((in[i] + min) * factor, top);
    const float residue = scale * code - min - in[i];
    error[i] = residue * residue;
    codes[i] = code;
    codes_squared[i] = code * code;
    products[i] = code * in[i];
  }
  return {scale,
          min,
          sum_by_lanes(error),
          sum_by_lanes(codes),
          sum_by_lanes(codes_squared),
          sum_by_lanes(products)};
}

void keep_better(Fit& best, const Fit& trial) {
  if (trial.error < best.error) best = trial;
}

// ---- q4_k, q5_k: scale * code - min, neither negative

struct SubBlock {
  const float* in;
  float sum;  // of the values
  Fit best;
};

// Least squares for the codes of `fit`, the min kept from going negative.
Fit refit(const SubBlock& sub, const Fit& fit, float top) {
  constexpr float kCount = kAffineValues;
  const float determinant = kCount * fit.codes_squared - fit.codes * fit.codes;
  if (determinant <= 0) return fit;
  float scale = (kCount * fit.products - fit.codes * sub.sum) / determinant;
  float min = (scale * fit.codes - sub.sum) / kCount;
  if (min < 0) {
    min = 0;
    scale = fit.products / fit.codes_squared;
  }
  if (!(scale > 0)) return fit;
  return try_affine(sub.in, scale, min, top);
}

// Fits one sub-block as if scale and min could be any numbers: starts from several step sizes
// around the one that spans the values, since clipping an outlier often pays.
SubBlock fit_affine(const float* in, float top) {
  float low = 0, high = in[0], sum = 0;
  for (size_t i = 0; i < kAffineValues; ++i) {
    low = std::min(low, in[i]);
    high = std::max(high, in[i]);
    sum += in[i];
  }
  SubBlock sub = {in, sum, {}};
  sub.best = try_affine(in, (high - low) / top, -low, top);
  if (high <= low) return sub;
  for (int step = -4; step <= 12; step += 2) {
    const float scale = (high - low) / (top + 0.1f * static_cast<float>(step));
    const Fit start = try_affine(in, scale, -low, top);
    keep_better(sub.best, refit(sub, start, top));
  }
  keep_better(sub.best, refit(sub, sub.best, top));
  return sub;
}

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
        const Fit trial = try_affine(subs[s].in, block.d * a, block.dmin * b, top);
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
    bb += b * b * kAffineValues;
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

AffineBlock fit_affine_block(const float* in, float top) {
  std::array<SubBlock, kAffineSubs> subs;
  float max_scale = 0, max_min = 0;
  for (size_t s = 0; s < kAffineSubs; ++s) {
    subs[s] = fit_affine(in + s * kAffineValues, top);
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
void encode_affine(const float* in, float top, Block& out) {
  const AffineBlock block = fit_affine_block(in, top);
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

void encode_q4_k(const float* in, BlockQ4K& block) {
  encode_affine(in, 15, block);
}

void encode_q5_k(const float* in, BlockQ5K& block) {
  encode_affine(in, 31, block);
}

// ---- q6_k: scale * (code - 32), of either sign

constexpr size_t kSymmetricValues = 16;
constexpr size_t kSymmetricSubs = 16;
constexpr float kCodeZero = 32;

// The same for codes - 32 in [-32, 31] and no min.
[[gnu::noinline]] Fit try_symmetric(const float* in, float scale) {
  const float factor = inverse(scale);
  std::array<float, kSymmetricValues> error, codes_squared, products;
#pragma GCC unroll 1
  for (size_t i = 0; i < kSymmetricValues; ++i) {
    const float code = nearest(in[i] * factor + kCodeZero, 2 * kCodeZero - 1) - kCodeZero;
    const float residue = scale * code - in[i];
    error[i] = residue * residue;
    codes_squared[i] = code * code;
    products[i] = code * in[i];
  }
  return {scale, 0, sum_by_lanes(error), 0, sum_by_lanes(codes_squared), sum_by_lanes(products)};
}

Fit fit_symmetric(const float* in) {
  float extreme = 0;
  for (size_t i = 0; i < kSymmetricValues; ++i)
    if (std::fabs(in[i]) > std::fabs(extreme)) extreme = in[i];
  Fit best = try_symmetric(in, extreme / -kCodeZero);
  if (extreme == 0) return best;
  for (int step = -6; step <= 6; step += 3) {
    const float scale = -extreme / (kCodeZero + 0.1f * static_cast<float>(step));
    const Fit start = try_symmetric(in, scale);
    if (start.codes_squared <= 0) continue;
    keep_better(best, try_symmetric(in, start.products / start.codes_squared));
  }
  return best;
}

struct SymmetricBlock {
  float d = 0;
  float error = std::numeric_limits<float>::infinity();
  std::array<int8_t, kSymmetricSubs> scale = {};
  std::array<Fit, kSymmetricSubs> fit = {};
};

SymmetricBlock store_symmetric(const float* in, const std::array<Fit, kSymmetricSubs>& fits,
                               float d) {
  SymmetricBlock block;
  block.d = to_f32(encode_scale(d));
  block.error = 0;
  for (size_t s = 0; s < kSymmetricSubs; ++s) {
    const float scale = nearest(fits[s].scale * inverse(block.d) + 128, 255) - 128;
    for (float a = std::max(-128.0f, scale - 1); a <= std::min(127.0f, scale + 1); ++a) {
      const Fit trial = try_symmetric(in + s * kSymmetricValues, block.d * a);
      if (trial.error >= block.fit[s].error) continue;
      block.fit[s] = trial;
      block.scale[s] = static_cast<int8_t>(a);
    }
    block.error += block.fit[s].error;
  }
  return block;
}

SymmetricBlock fit_symmetric_block(const float* in) {
  std::array<Fit, kSymmetricSubs> fits;
  float extreme = 0;
  for (size_t s = 0; s < kSymmetricSubs; ++s) {
    fits[s] = fit_symmetric(in + s * kSymmetricValues);
    if (std::fabs(fits[s].scale) > std::fabs(extreme)) extreme = fits[s].scale;
  }
  const SymmetricBlock first = store_symmetric(in, fits, extreme / -128);
  double squares = 0, products = 0;
  for (size_t s = 0; s < kSymmetricSubs; ++s) {
    const double a = first.scale[s];
    squares += a * a * first.fit[s].codes_squared;
    products += a * first.fit[s].products;
  }
  if (squares <= 0) return first;
  const SymmetricBlock second = store_symmetric(in, fits, static_cast<float>(products / squares));
  return second.error < first.error ? second : first;
}

void encode_q6_k(const float* in, BlockQ6K& out) {
  const SymmetricBlock block = fit_symmetric_block(in);
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

}  // namespace

void encode_k_blocks(DType type, const float* in, std::byte* out, size_t blocks) {
  switch (type) {
    case DType::q4_k:
      return encode_each<BlockQ4K>(in, out, blocks, encode_q4_k);
    case DType::q5_k:
      return encode_each<BlockQ5K>(in, out, blocks, encode_q5_k);
    case DType::q6_k:
      return encode_each<BlockQ6K>(in, out, blocks, encode_q6_k);
    default:
      TYTO_ASSERT(!"a type of 256-value blocks");
  }
}

}  // namespace tyto
