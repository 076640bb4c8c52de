// How well codes render values, and the search for scales that render them best. Squared errors
// count as much as each value's weight says.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>

#include "tensor/quant_blocks.h"

namespace tyto {

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
  float sum;     // of the values, weighted
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

}  // namespace tyto
