// A Llama layer's operations as loops easy to check, on row-major f32, rounded to bf16 where
// the hardware stores. The tests of images compare with these.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "tensor/float16.h"

namespace tyto::plain {

using Values = std::vector<float>;
using Words = std::vector<uint16_t>;  // bf16

inline float rounded(float value) {
  return bf16_to_f32(f32_to_bf16(value));
}

inline Values rounded(Values values) {
  for (float& value : values) value = rounded(value);
  return values;
}

inline Words to_bf16(const Values& values) {
  Words result(values.size());
  for (size_t i = 0; i < values.size(); ++i) result[i] = f32_to_bf16(values[i]);
  return result;
}

inline Values to_f32(const Words& words) {
  Values result(words.size());
  for (size_t i = 0; i < words.size(); ++i) result[i] = bf16_to_f32(words[i]);
  return result;
}

// Values that bf16 holds exactly.
inline Values random_values(size_t count, uint32_t seed, float scale = 1) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> values(-scale, scale);
  Values result(count);
  for (float& value : result) value = rounded(values(random));
  return result;
}

// rows x cols of the result; the operand is cols x rows.
inline Values transpose(const Values& in, size_t rows, size_t cols) {
  Values out(in.size());
  for (size_t r = 0; r < rows; ++r)
    for (size_t c = 0; c < cols; ++c) out[r * cols + c] = in[c * rows + r];
  return out;
}

// x: tokens x k; w: n x k.
inline Values matmul(const Values& x, const Values& w, size_t k) {
  const size_t tokens = x.size() / k, n = w.size() / k;
  Values y(tokens * n);
  for (size_t t = 0; t < tokens; ++t)
    for (size_t i = 0; i < n; ++i) {
      double sum = 0;
      for (size_t j = 0; j < k; ++j) sum += double{x[t * k + j]} * double{w[i * k + j]};
      y[t * n + i] = static_cast<float>(sum);
    }
  return y;
}

inline Values rmsnorm(const Values& x, const Values& weight, double eps) {
  const size_t width = weight.size();
  Values y(x.size());
  for (size_t row = 0; row < x.size() / width; ++row) {
    double sum = 0;
    for (size_t i = 0; i < width; ++i)
      sum += double{x[row * width + i]} * double{x[row * width + i]};
    const double scale = 1 / std::sqrt(sum / static_cast<double>(width) + eps);
    for (size_t i = 0; i < width; ++i)
      y[row * width + i] = static_cast<float>(x[row * width + i] * scale * weight[i]);
  }
  return rounded(y);
}

// Element i of a head turns with i + half, by cos[i] and sin[i] of its own row of the table.
inline void rotate_head(float* head, const float* row, size_t dim) {
  for (size_t i = 0; i < dim / 2; ++i) {
    const float a = head[i], b = head[i + dim / 2], cosine = row[i], sine = row[i + dim / 2];
    head[i] = a * cosine - b * sine;
    head[i + dim / 2] = a * sine + b * cosine;
  }
}

inline Values add(const Values& x, const Values& y) {
  Values z(x.size());
  for (size_t i = 0; i < x.size(); ++i) z[i] = x[i] + y[i];
  return rounded(z);
}

inline Values swiglu(const Values& gate, const Values& up) {
  Values y(gate.size());
  for (size_t i = 0; i < y.size(); ++i) y[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
  return rounded(y);
}

// One query head of `dim` values on keys and values that `key(p)` and `value(p)` point to.
template <typename Key, typename Value>
void attend(const float* q, size_t dim, size_t positions, const Key& key, const Value& value,
            float* y) {
  std::vector<double> scores(positions);
  double largest = -1e30, total = 0;
  for (size_t p = 0; p < positions; ++p) {
    for (size_t i = 0; i < dim; ++i) scores[p] += double{q[i]} * double{key(p)[i]};
    scores[p] /= std::sqrt(static_cast<double>(dim));
    largest = std::max(largest, scores[p]);
  }
  for (double& score : scores) total += score = std::exp(score - largest);
  for (size_t i = 0; i < dim; ++i) {
    double sum = 0;
    for (size_t p = 0; p < positions; ++p) sum += scores[p] / total * double{value(p)[i]};
    y[i] = rounded(static_cast<float>(sum));
  }
}

// Within a fraction of the largest value; of what is not just zeros.
inline void expect_close(const Values& actual, const Values& expected, float tolerance,
                         const char* what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  float largest = 0;
  for (float value : expected) largest = std::max(largest, std::abs(value));
  ASSERT_GT(largest, 1e-3f) << what;
  for (size_t i = 0; i < actual.size(); ++i)
    ASSERT_NEAR(actual[i], expected[i], tolerance * largest) << what << " " << i;
}

}  // namespace tyto::plain
