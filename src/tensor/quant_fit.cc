#include "tensor/quant_fit.h"

namespace tyto {

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

}  // namespace tyto
