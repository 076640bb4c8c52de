// Whole products, tile by tile as an image would compute them, against double precision.
#include "device/npu/formats/int8_gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "support/expect_error.h"
#include "tensor/quant.h"

namespace tyto {
namespace {

template <typename Function>
std::string error_of(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

GemmSlot slot_of(uint32_t k, uint32_t m_tile, uint32_t n_tile, uint32_t columns = 1) {
  return {"gemm_k" + std::to_string(k), k, m_tile, n_tile, columns};
}

std::vector<float> random_values(std::mt19937& random, size_t count, float size) {
  std::normal_distribution<float> normal(0, size);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

TensorView view_of(const std::vector<float>& values, uint64_t rows, uint64_t cols) {
  return {DType::f32, rows, cols, std::as_bytes(std::span(values))};
}

// What the image does: one tile of tokens and of outputs, all of K.
void dispatch(const GemmSlot& slot, const int8_t* x, const int8_t* w, int32_t* acc) {
  for (uint64_t t = 0; t < slot.m_tile; ++t)
    for (uint64_t n = 0; n < slot.n_tile; ++n) {
      int32_t sum = 0;
      for (uint64_t i = 0; i < slot.k; ++i) sum += int32_t{x[t * slot.k + i]} * w[n * slot.k + i];
      acc[t * slot.n_tile + n] = sum;
    }
}

struct Product {
  std::vector<int8_t> x_codes, w_codes;
  std::vector<float> x_scales, w_scales, y;
  uint64_t dispatches = 0;
};

std::span<int8_t> rows_of(std::vector<int8_t>& codes, const GemmExtent& extent) {
  return std::span(codes).first(extent.tokens * extent.padded_k);
}

Product multiply(const GemmSlot& slot, const GemmExtent& extent, const std::vector<float>& x,
                 const TensorView& w, ThreadPool& pool) {
  Product p;
  p.x_codes.assign(extent.activation_bytes(), 99);  // whatever an earlier call left
  p.w_codes.assign(extent.weight_bytes(), 99);
  p.x_scales.resize(extent.tokens);
  p.w_scales.resize(extent.outputs);
  p.y.assign(extent.tokens * extent.outputs, -777.0f);
  quantize_gemm_weights({"w", w}, extent, p.w_codes, p.w_scales, pool);
  quantize_gemm_activations(x, extent, rows_of(p.x_codes, extent), p.x_scales);
  std::vector<int32_t> acc(uint64_t{slot.m_tile} * slot.n_tile);
  for (uint64_t t = 0; t < extent.padded_m; t += slot.m_tile)
    for (uint64_t n = 0; n < extent.padded_n; n += slot.n_tile) {
      dispatch(slot, &p.x_codes[t * slot.k], &p.w_codes[n * slot.k], acc.data());
      ++p.dispatches;
      const auto tokens = std::span(p.x_scales)
                              .subspan(t)
                              .first(std::min<uint64_t>(slot.m_tile, extent.tokens - t));
      const auto outputs = std::span(p.w_scales)
                               .subspan(n)
                               .first(std::min<uint64_t>(slot.n_tile, extent.outputs - n));
      dequantize_gemm(acc, slot.n_tile, tokens, outputs,
                      std::span(p.y).subspan(t * extent.outputs + n), extent.outputs);
    }
  return p;
}

// Each factor is off by at most half its row's step, so a product by |x| dw + |w| dx + dx dw; f32
// adds its own roundings of the scales, the codes and the result.
void expect_close(const GemmExtent& extent, const std::vector<float>& x,
                  const std::vector<float>& w, const Product& p) {
  constexpr double kHalf = 0.5 * (1 + 1e-4);
  for (uint64_t t = 0; t < extent.tokens; ++t)
    for (uint64_t n = 0; n < extent.outputs; ++n) {
      const double dx = kHalf * p.x_scales[t], dw = kHalf * p.w_scales[n];
      double exact = 0, bound = 0;
      for (uint64_t i = 0; i < extent.k; ++i) {
        const double a = x[t * extent.k + i], b = w[n * extent.k + i];
        exact += a * b;
        bound += std::fabs(a) * dw + std::fabs(b) * dx + dx * dw + std::fabs(a * b) * 1e-6;
      }
      ASSERT_LE(std::fabs(p.y[t * extent.outputs + n] - exact), bound)
          << extent.tokens << " x " << extent.outputs << " x " << extent.k << ", token " << t
          << ", output " << n;
    }
}

TEST(Int8Gemm, AThousandRandomShapes) {
  std::mt19937 random(1);
  ThreadPool pool(2);
  constexpr uint32_t kColumns[] = {1, 2, 4, 8};
  for (int trial = 0; trial < 1000; ++trial) {
    const uint64_t k = 1 + random() % 133, outputs = 1 + random() % 23, tokens = 1 + random() % 7;
    const uint32_t columns = kColumns[random() % 4];
    const GemmSlot slot =
        slot_of(static_cast<uint32_t>(k + random() % 40 + 3) / 4 * 4,
                1 + static_cast<uint32_t>(random() % 5), columns * (1 + random() % 3), columns);
    check_slots({&slot, 1});
    const GemmExtent extent = gemm_extent(slot, tokens, outputs, k);
    const float x_size = std::ldexp(1.0f, static_cast<int>(random() % 40) - 20);
    const std::vector<float> x = random_values(random, tokens * k, x_size);
    const std::vector<float> w = random_values(random, outputs * k, 0.02f);
    const Product p = multiply(slot, extent, x, view_of(w, outputs, k), pool);
    expect_close(extent, x, w, p);
    ASSERT_EQ(p.dispatches, extent.padded_m / slot.m_tile * (extent.padded_n / slot.n_tile));
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(Int8Gemm, FewOutputsAndOddOnes) {
  std::mt19937 random(2);
  ThreadPool pool(2);
  const GemmSlot slot = slot_of(1024, 4, 8, 4);
  for (uint64_t outputs = 1; outputs <= 9; ++outputs)
    for (const uint64_t k : {1u, 3u, 255u, 257u, 1000u, 1023u, 1024u}) {
      const GemmExtent extent = gemm_extent(slot, 1, outputs, k);
      EXPECT_EQ(extent.padded_n, outputs <= 8 ? 8u : 16u);
      EXPECT_EQ(extent.padded_m, 4u);
      EXPECT_EQ(extent.padded_k, 1024u);
      const std::vector<float> x = random_values(random, k, 1.0f);
      const std::vector<float> w = random_values(random, outputs * k, 1.0f);
      expect_close(extent, x, w, multiply(slot, extent, x, view_of(w, outputs, k), pool));
    }
}

TEST(Int8Gemm, RowsKeepTheirOwnScaleAndPaddingIsZero) {
  ThreadPool pool(2);
  const GemmSlot slot = slot_of(8, 2, 4, 2);
  const GemmExtent extent = gemm_extent(slot, 1, 3, 5);
  // The largest of a row becomes 127; -127 is the lowest code; zeros have no scale.
  const std::vector<float> w = {254, -254, 2, 1, 0, 0, 0, -0.0f, 0, 0, -1, 0.5f, 0.25f, 0, 1e-9f};
  std::vector<int8_t> codes(extent.weight_bytes(), 99);
  std::vector<float> scales(3, -1);
  quantize_gemm_weights({"w", view_of(w, 3, 5)}, extent, codes, scales, pool);
  EXPECT_EQ(scales, (std::vector<float>{2.0f, 0.0f, 1.0f / 127.0f}));
  EXPECT_EQ(codes, (std::vector<int8_t>{127,  -127, 1,  1, 0, 0, 0, 0,  //
                                        0,    0,    0,  0, 0, 0, 0, 0,  //
                                        -127, 64,   32, 0, 0, 0, 0, 0,  //
                                        0,    0,    0,  0, 0, 0, 0, 0}));
  std::vector<int8_t> x_codes(extent.activation_bytes(), 99);
  std::vector<float> x_scales(1);
  const std::vector<float> x = {-1.27f, 0.01f, 0.1f, 0, 0.004f};
  quantize_gemm_activations(x, extent, rows_of(x_codes, extent), x_scales);
  EXPECT_FLOAT_EQ(x_scales[0], 0.01f);
  EXPECT_EQ(x_codes, (std::vector<int8_t>{-127, 1, 10, 0, 0, 0, 0, 0,  //
                                          99, 99, 99, 99, 99, 99, 99, 99}));
}

TEST(Int8Gemm, TheLargestSumsStayInInt32) {
  ThreadPool pool(2);
  const GemmSlot slot = slot_of(kMaxGemmK / 4 * 4, 1, 1);
  check_slots({&slot, 1});
  const GemmExtent extent = gemm_extent(slot, 1, 1, slot.k);
  const std::vector<float> x(slot.k, 1.0f), w(slot.k, -1.0f);
  const Product p = multiply(slot, extent, x, view_of(w, 1, slot.k), pool);
  EXPECT_NEAR(p.y[0], -static_cast<double>(slot.k), slot.k * 1e-6);
}

TEST(Int8Gemm, ExtremeSizesGiveNeitherInfinityNorNan) {
  ThreadPool pool(1);
  const GemmSlot slot = slot_of(4, 1, 1);
  const GemmExtent extent = gemm_extent(slot, 1, 1, 4);
  for (const float size : {1e-45f, 1e-40f, 0x1p-126f, 0x1p-119f, 1e-30f, 1e18f}) {
    const std::vector<float> x = {size, -size, size / 2, 0}, w = {1, 0.5f, 0.25f, 1};
    const Product p = multiply(slot, extent, x, view_of(w, 1, 4), pool);
    const double exact = double{x[0]} + 0.5 * x[1] + 0.25 * x[2];
    EXPECT_NEAR(p.y[0], exact, std::max(0.03 * size, 2 * 127 * 0x1p-126)) << size;
  }
}

TEST(Int8Gemm, EveryDtypeIsQuantisedFromItsDecodedValues) {
  std::mt19937 random(5);
  ThreadPool pool(2);
  for (const DType type : {DType::f16, DType::bf16, DType::q8_0, DType::q4_0, DType::q4_1,
                           DType::q5_0, DType::q5_1, DType::q4_k, DType::q5_k, DType::q6_k}) {
    const uint64_t k = info(type).block_values == 256 ? 768 : 608;
    std::vector<float> values = random_values(random, 11 * k, 0.1f);
    std::vector<std::byte> stored(11 * row_bytes(type, k));
    quantize(type, values, stored);
    dequantize(type, stored, values);
    const GemmExtent extent = gemm_extent(slot_of(1024, 1, 4), 1, 11, k);
    std::vector<int8_t> codes(extent.weight_bytes()), plain(extent.weight_bytes());
    std::vector<float> scales(11), plain_scales(11);
    quantize_gemm_weights({"w", {type, 11, k, stored}}, extent, codes, scales, pool);
    quantize_gemm_weights({"w", view_of(values, 11, k)}, extent, plain, plain_scales, pool);
    EXPECT_EQ(codes, plain) << info(type).name;
    EXPECT_EQ(scales, plain_scales) << info(type).name;
  }
}

TEST(Int8Gemm, WeightsThatAreNotFiniteAreRefusedByName) {
  ThreadPool pool(3);
  const GemmExtent extent = gemm_extent(slot_of(512, 4, 8), 3, 20, 500);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity(), 3e38f}) {
    std::vector<float> w(20 * 500, 1.0f);
    w[17 * 500 + 1] = w[4 * 500 + 499] = bad;
    std::vector<int8_t> codes(extent.weight_bytes());
    std::vector<float> scales(20);
    const std::string weights = error_of([&] {
      quantize_gemm_weights({"blk.0.ffn_up", view_of(w, 20, 500)}, extent, codes, scales, pool);
    });
    EXPECT_NE(weights.find("blk.0.ffn_up: "), std::string::npos) << weights;
    EXPECT_NE(weights.find("row 4, column 499"), std::string::npos) << weights;
  }
  std::vector<int8_t> codes(extent.weight_bytes());
  std::vector<float> scales(20), w(20 * 499);
  EXPECT_EQ(error_of([&] {
              quantize_gemm_weights({"up", view_of(w, 20, 499)}, extent, codes, scales, pool);
            }),
            "up: is 20 x 499, not 20 x 500");
}

TEST(Int8Gemm, ATokenThatIsNotFiniteStaysSo) {
  ThreadPool pool(2);
  const GemmSlot slot = slot_of(512, 4, 8);
  const GemmExtent extent = gemm_extent(slot, 3, 20, 500);
  const std::vector<float> w(20 * 500, 1.0f);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    std::vector<float> x(3 * 500, 1.0f);
    x[2 * 500 + 7] = bad;
    const Product product = multiply(slot, extent, x, view_of(w, 20, 500), pool);
    for (size_t i = 0; i < product.y.size(); ++i)
      EXPECT_EQ(std::isfinite(product.y[i]), i / 20 != 2) << i;
  }
}

TEST(Int8Gemm, TheSmallestSlotThatHoldsK) {
  // System C's four, and a second image of one K.
  const GemmSlot slots[] = {slot_of(5632, 64, 256, 4), slot_of(2048, 64, 256, 4),
                            slot_of(14336, 64, 256, 4), slot_of(4096, 64, 256, 4),
                            slot_of(2048, 16, 64, 4)};
  check_slots(slots);
  EXPECT_EQ(choose_slot(slots, 1, 64).slot, 1u);
  EXPECT_EQ(choose_slot(slots, 2048, 64).slot, 1u);
  EXPECT_EQ(choose_slot(slots, 2049, 64).slot, 3u);
  EXPECT_EQ(choose_slot(slots, 4096, 64).slot, 3u);
  EXPECT_EQ(choose_slot(slots, 5000, 64).slot, 0u);
  EXPECT_EQ(choose_slot(slots, 14336, 64).slot, 2u);
  EXPECT_EQ(choose_slot(slots, 14336, 64).reason, "");
  EXPECT_FALSE(choose_slot(slots, 14337, 64).slot);
  EXPECT_EQ(choose_slot(slots, 14337, 64).reason,
            "K = 14337 is more than the 14336 of the largest GEMM image");
  EXPECT_EQ(choose_slot({}, 64, 64).reason, "no GEMM image is loaded");
  EXPECT_FALSE(choose_slot(slots, 0, 64).slot);
  // One image of a K for tokens and one for prompts: the rows of a call tell which.
  for (const uint64_t tokens : {1, 16}) EXPECT_EQ(choose_slot(slots, 2048, tokens).slot, 4u);
  for (const uint64_t tokens : {17, 64, 65, 2048})
    EXPECT_EQ(choose_slot(slots, 2048, tokens).slot, 1u);
  EXPECT_EQ(weight_extent(slots, 4, 65, 2048).padded_n, 256u);
  EXPECT_EQ(weight_extent(slots, 3, 65, 4096).padded_n, 256u);
  EXPECT_ERROR(gemm_extent(slots[1], 1, 1, 2049), "K = 2049 is more than its 2048");
  EXPECT_ERROR(gemm_extent(slots[1], 0, 1, 2048), "a product of 0 tokens");
}

TEST(Int8Gemm, ImpossibleSlotsAreRefusedByName) {
  const auto refused = [](GemmSlot slot) {
    return error_of([&] { check_slots({&slot, 1}); }).starts_with(slot.image + ": ");
  };
  EXPECT_FALSE(refused(slot_of(2048, 64, 256, 8)));
  EXPECT_TRUE(refused(slot_of(0, 64, 256)));
  EXPECT_TRUE(refused(slot_of(kMaxGemmK + 1, 64, 256)));
  EXPECT_TRUE(refused(slot_of(2047, 64, 256)));
  EXPECT_TRUE(refused(slot_of(2048, 0, 256)));
  EXPECT_TRUE(refused(slot_of(2048, 64, 0)));
  EXPECT_TRUE(refused(slot_of(2048, 64, 256, 0)));
  EXPECT_TRUE(refused(slot_of(2048, 64, 255, 3)));
  EXPECT_TRUE(refused(slot_of(2048, 64, 256, 16)));
  EXPECT_TRUE(refused(slot_of(2048, 64, 250, 4)));
  const std::vector<GemmSlot> nine(9, slot_of(2048, 64, 256, 4));
  EXPECT_NO_THROW(check_slots(std::span(nine).first(8)));
  EXPECT_ERROR(check_slots(nine), "is one of 9 GEMM images; at most 8");
}

TEST(Int8Gemm, SumsLandBetweenTheirNeighbours) {
  const int32_t acc[] = {1, -2, 99, 3, 4, 99};
  const float token_scales[] = {2.0f, 0.5f}, output_scales[] = {1.0f, 10.0f};
  std::vector<float> y(8, -777.0f);
  dequantize_gemm(acc, 3, token_scales, output_scales, y, 4);
  EXPECT_EQ(y, (std::vector<float>{2, -40, -777, -777, 1.5f, 20, -777, -777}));
}

}  // namespace
}  // namespace tyto
