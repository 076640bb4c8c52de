#include "device/npu/formats/int8_gemm.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "tensor/float16.h"

namespace tyto {
namespace {

// y = x · weightᵀ as an NPU has it: bf16 operands, sums in f32, a bf16 result.
struct Product {
  static constexpr size_t kK = 512, kN = 1024;

  Product() {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    const auto rounded = [&] { return f32_to_bf16(normal(random)); };
    for (size_t i = 0; i < kK * kN; ++i) codes.push_back(rounded());
    for (size_t i = 0; i < kK; ++i) x.push_back(bf16_to_f32(rounded()));
    for (size_t row = 0; row < kN; ++row) {
      float sum = 0;
      for (size_t i = 0; i < kK; ++i) sum += x[i] * bf16_to_f32(codes[row * kK + i]);
      y.push_back(bf16_to_f32(f32_to_bf16(sum)));
    }
    weight_sum = sum_of_rows({DType::bf16, kN, kK, std::as_bytes(std::span(codes))}, 0, kN, pool);
  }

  ThreadPool pool{2};
  std::vector<uint16_t> codes;
  std::vector<float> x, y, weight_sum;
};

TEST(RowSums, RoundingIsNoFault) {
  const Product product;
  EXPECT_TRUE(row_sum(product.weight_sum, product.x, product.y).holds());
}

TEST(RowSums, AValueSixteenTimesTooLargeIsNoticedUnlessItIsTiny) {
  Product product;
  size_t noticed = 0;
  for (float& value : product.y) {
    const float before = value;
    value *= 16;
    noticed += row_sum(product.weight_sum, product.x, product.y).holds() ? 0 : 1;
    value = before;
  }
  EXPECT_GT(noticed, product.y.size() * 9 / 10);
}

TEST(RowSums, WhatIsNotANumberNeverHolds) {
  Product product;
  product.y[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(row_sum(product.weight_sum, product.x, product.y).holds());
  product.y[3] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(row_sum(product.weight_sum, product.x, product.y).holds());
}

TEST(RowSums, PartsOfAWeightAddUp) {
  Product product;
  const TensorView weight{DType::bf16, Product::kN, Product::kK,
                          std::as_bytes(std::span(product.codes))};
  const std::vector<float> first = sum_of_rows(weight, 0, 100, product.pool);
  const std::vector<float> rest = sum_of_rows(weight, 100, Product::kN - 100, product.pool);
  for (size_t i = 0; i < Product::kK; ++i)
    EXPECT_NEAR(first[i] + rest[i], product.weight_sum[i], 1e-3) << i;
}

}  // namespace
}  // namespace tyto
