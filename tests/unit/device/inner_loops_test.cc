// Every instruction-set variant against plain double-precision loops, on odd shapes.
#include "device/cpu/inner_loops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "tensor/float16.h"

namespace tyto::cpu {
namespace {

std::vector<const InnerLoops*> variants() {
  std::vector<const InnerLoops*> result = {&generic::inner_loops()};
  const std::string_view best = best_inner_loops().name;
  if (best != "generic") result.push_back(&avx2::inner_loops());
  if (best == "avx512") result.push_back(&avx512::inner_loops());
  return result;
}

std::vector<float> random_values(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& value : values)
    value = static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 500.0f;
  return values;
}

std::vector<uint16_t> narrowed(const std::vector<float>& values, DType type) {
  std::vector<uint16_t> out;
  for (float value : values)
    out.push_back(type == DType::f16 ? f32_to_f16(value) : f32_to_bf16(value));
  return out;
}

class InnerLoopsTest : public testing::TestWithParam<const InnerLoops*> {
 protected:
  const InnerLoops& loops_ = *GetParam();
};

TEST_P(InnerLoopsTest, MatmulMatchesPlainLoopsOnOddShapes) {
  for (DType type : {DType::f32, DType::f16, DType::bf16})
    for (size_t k : {1, 7, 8, 33, 64, 100})
      for (size_t rows : {1, 3, 4, 9})
        for (size_t tokens = 1; tokens <= 9; ++tokens) {
          const auto x = random_values(tokens * k, 1);
          const auto w = random_values(rows * k, 2);
          const auto half = narrowed(w, type == DType::f32 ? DType::bf16 : type);
          std::vector<float> y(tokens * (rows + 2), -777.0f);
          const void* weights =
              type == DType::f32 ? static_cast<const void*>(w.data()) : half.data();
          loops_.matmul({x.data(), k, tokens, weights, type, rows, k, y.data() + 1, rows + 2});
          for (size_t t = 0; t < tokens; ++t) {
            EXPECT_EQ(y[t * (rows + 2)], -777.0f);
            for (size_t r = 0; r < rows; ++r) {
              double expected = 0, magnitude = 0;
              for (size_t i = 0; i < k; ++i) {
                const uint16_t h = half[r * k + i];
                const double weight = type == DType::f32   ? w[r * k + i]
                                      : type == DType::f16 ? f16_to_f32(h)
                                                           : bf16_to_f32(h);
                expected += weight * x[t * k + i];
                magnitude += std::fabs(weight * x[t * k + i]);
              }
              EXPECT_NEAR(y[t * (rows + 2) + 1 + r], expected, 1e-6 * magnitude + 1e-6)
                  << loops_.name << " k=" << k << " rows=" << rows << " tokens=" << tokens;
            }
          }
        }
}

// The continuation law rests on this: a token's result does not depend on its neighbours.
TEST_P(InnerLoopsTest, MatmulResultDoesNotDependOnTheNumberOfTokens) {
  const size_t k = 77, rows = 10, tokens = 8;
  const auto x = random_values(tokens * k, 3);
  const auto w = random_values(rows * k, 4);
  std::vector<float> together(tokens * rows), alone(tokens * rows);
  loops_.matmul({x.data(), k, tokens, w.data(), DType::f32, rows, k, together.data(), rows});
  for (size_t t = 0; t < tokens; ++t)
    loops_.matmul(
        {x.data() + t * k, k, 1, w.data(), DType::f32, rows, k, alone.data() + t * rows, rows});
  EXPECT_EQ(together, alone);
}

TEST_P(InnerLoopsTest, AttendMatchesPlainLoops) {
  for (DType type : {DType::f32, DType::f16})
    for (size_t head_dim : {8, 20, 64})
      for (size_t positions : {1, 2, 17, 100}) {
        const size_t group = 3;
        const auto q = random_values(group * head_dim, 5);
        auto k = random_values(positions * head_dim, 6);
        auto v = random_values(positions * head_dim, 7);
        const auto k_half = narrowed(k, DType::f16), v_half = narrowed(v, DType::f16);
        if (type == DType::f16)
          for (size_t i = 0; i < k.size(); ++i) {
            k[i] = f16_to_f32(k_half[i]);
            v[i] = f16_to_f32(v_half[i]);
          }
        std::vector<float> scores(group * positions), y(group * head_dim);
        const bool f32 = type == DType::f32;
        loops_.attend({q.data(), f32 ? static_cast<const void*>(k.data()) : k_half.data(),
                       f32 ? static_cast<const void*>(v.data()) : v_half.data(), type, group,
                       head_dim, positions, scores.data(), y.data()});
        for (size_t g = 0; g < group; ++g) {
          std::vector<double> weights(positions);
          double total = 0;
          for (size_t p = 0; p < positions; ++p) {
            double dot = 0;
            for (size_t i = 0; i < head_dim; ++i)
              dot += double{q[g * head_dim + i]} * k[p * head_dim + i];
            total += weights[p] = std::exp(dot / std::sqrt(static_cast<double>(head_dim)));
          }
          for (size_t i = 0; i < head_dim; ++i) {
            double expected = 0;
            for (size_t p = 0; p < positions; ++p)
              expected += weights[p] / total * v[p * head_dim + i];
            EXPECT_NEAR(y[g * head_dim + i], expected, 2e-5) << loops_.name;
          }
        }
      }
}

TEST_P(InnerLoopsTest, ElementwiseLoops) {
  for (size_t count : {1, 5, 8, 100}) {
    const auto x = random_values(count, 8), w = random_values(count, 9);
    std::vector<float> y(count);
    loops_.rmsnorm(x.data(), w.data(), y.data(), count, 1e-5f);
    double squares = 0;
    for (float value : x) squares += double{value} * value;
    const double scale = 1 / std::sqrt(squares / static_cast<double>(count) + 1e-5);
    for (size_t i = 0; i < count; ++i) EXPECT_NEAR(y[i], x[i] * scale * w[i], 1e-5);
    loops_.swiglu(x.data(), w.data(), y.data(), count);
    for (size_t i = 0; i < count; ++i)
      EXPECT_NEAR(y[i], x[i] / (1 + std::exp(-double{x[i]})) * w[i], 1e-5);
    auto sum = x;
    loops_.add(sum.data(), w.data(), count);
    for (size_t i = 0; i < count; ++i) EXPECT_EQ(sum[i], x[i] + w[i]);
  }
}

TEST_P(InnerLoopsTest, WidenAndNarrowAgreeWithTheScalarConversions) {
  const auto values = random_values(37, 10);
  std::vector<uint16_t> half(values.size());
  loops_.narrow(DType::f16, values.data(), half.data(), values.size());
  EXPECT_EQ(half, narrowed(values, DType::f16));
  std::vector<float> wide(values.size());
  loops_.widen(DType::f16, half.data(), wide.data(), half.size());
  for (size_t i = 0; i < half.size(); ++i) EXPECT_EQ(wide[i], f16_to_f32(half[i]));
  const auto bf16 = narrowed(values, DType::bf16);
  loops_.widen(DType::bf16, bf16.data(), wide.data(), bf16.size());
  for (size_t i = 0; i < bf16.size(); ++i) EXPECT_EQ(wide[i], bf16_to_f32(bf16[i]));
}

INSTANTIATE_TEST_SUITE_P(AllIsas, InnerLoopsTest, testing::ValuesIn(variants()),
                         [](const auto& variant) { return std::string(variant.param->name); });

}  // namespace
}  // namespace tyto::cpu
