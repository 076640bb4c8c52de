#include "tensor/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "support/print_dtype.h"
#include "tensor/quant.h"

namespace tyto {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(Finite, OfFloatsEveryPlaceIsLookedAt) {
  std::vector<float> values(37, std::numeric_limits<float>::max());
  values[3] = -values[0];
  values[4] = std::numeric_limits<float>::denorm_min();
  EXPECT_TRUE(all_finite(values));
  for (const float bad : {kNan, -kNan, kInf, -kInf})
    for (size_t i = 0; i < values.size(); ++i) {
      std::vector<float> damaged = values;
      damaged[i] = bad;
      EXPECT_FALSE(all_finite(damaged)) << bad << " at " << i;
    }
}

// Where a type keeps what can be infinite or not a number, in bytes of a block, and how many bits
// of exponent it has.
struct Place {
  DType type;
  std::vector<size_t> bytes;
};

std::ostream& operator<<(std::ostream& out, const Place& place) {
  return out << info(place.type).name;
}

class OfType : public testing::TestWithParam<Place> {};

// Every 16-bit pattern in every such place of the middle one of three rows, against what decoding
// gives.
TEST_P(OfType, AgreesWithDecodingForEveryPattern) {
  const DType type = GetParam().type;
  const size_t block = info(type).block_bytes, values = info(type).block_values;
  std::vector<std::byte> bytes(3 * 2 * block, std::byte{1});
  const TensorView view{type, 3, 2 * values, bytes};
  ASSERT_TRUE(all_finite(type, bytes));
  ASSERT_FALSE(find_non_finite(view));
  for (const size_t place : GetParam().bytes)
    for (uint32_t pattern = 0; pattern <= UINT16_MAX; ++pattern) {
      std::vector<std::byte> damaged = bytes;
      std::memcpy(damaged.data() + 3 * block + place, &pattern, 2);
      std::vector<float> decoded(values);
      dequantize(type, std::span(damaged).subspan(3 * block, block), decoded);
      bool expected = true;
      for (const float value : decoded) expected = expected && std::isfinite(value);
      ASSERT_EQ(all_finite(type, damaged), expected) << pattern;
      if (expected) continue;
      const auto found = find_non_finite({type, 3, 2 * values, damaged});
      ASSERT_TRUE(found);
      EXPECT_EQ(found->row, 1u);
      EXPECT_EQ(found->column, values);
      EXPECT_FALSE(std::isfinite(found->value));
    }
}

INSTANTIATE_TEST_SUITE_P(
    Finite, OfType,
    testing::Values(Place{DType::f32, {2}}, Place{DType::f16, {0}}, Place{DType::bf16, {0}},
                    Place{DType::q8_0, {0}}, Place{DType::q4_0, {0}}, Place{DType::q4_1, {0, 2}},
                    Place{DType::q5_0, {0}}, Place{DType::q5_1, {0, 2}}, Place{DType::q4_k, {0, 2}},
                    Place{DType::q5_k, {0, 2}}, Place{DType::q6_k, {208}},
                    Place{DType::q2_k, {80, 82}}, Place{DType::q3_k, {108}},
                    Place{DType::iq4_nl, {0}}, Place{DType::iq2_s, {0}}),
    [](const auto& info_of) { return std::string(tyto::info(info_of.param.type).name); });

// Every f16 as the scale, whose nibbles lie in four places.
TEST(Finite, Iq1MAgreesWithDecodingForEveryPattern) {
  for (uint32_t pattern = 0; pattern <= UINT16_MAX; ++pattern) {
    std::vector<std::byte> block(info(DType::iq1_m).block_bytes, std::byte{1});
    for (size_t i = 0; i < 4; ++i)
      block[49 + 2 * i] = static_cast<std::byte>((pattern >> (4 * i) & 15) << 4 | 1);
    std::vector<float> decoded(256);
    dequantize(DType::iq1_m, block, decoded);
    ASSERT_EQ(all_finite(DType::iq1_m, block), all_finite(decoded)) << pattern;
  }
}

// Powers of two and small codes: only together they may be too much.
TEST(Finite, Mxfp4AgreesWithDecodingForEveryPattern) {
  size_t bad = 0;
  for (uint32_t pattern = 0; pattern <= UINT16_MAX; ++pattern) {
    std::vector<std::byte> blocks(2 * info(DType::mxfp4).block_bytes);
    std::memcpy(blocks.data() + 17, &pattern, 2);
    std::vector<float> decoded(64);
    dequantize(DType::mxfp4, blocks, decoded);
    ASSERT_EQ(all_finite(DType::mxfp4, blocks), all_finite(decoded)) << pattern;
    bad += all_finite(decoded) ? 0 : 1;
  }
  EXPECT_GT(bad, 0u);
}

TEST(Finite, IntegersAlwaysAre) {
  const std::vector<std::byte> ones(64, std::byte{0xff});
  EXPECT_TRUE(all_finite(DType::i32, ones));
  EXPECT_TRUE(all_finite(DType::i8, ones));
}

TEST(Finite, TheFirstBeyondALimitIsFound) {
  std::vector<float> values(12, 1.0f);
  const TensorView view{DType::f32, 3, 4, std::as_bytes(std::span(values))};
  EXPECT_FALSE(find_beyond(view, 1.0f));
  values[9] = -1.5f;
  values[10] = kNan;
  const auto found = find_beyond(view, 1.0f);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->row, 2u);
  EXPECT_EQ(found->column, 1u);
  EXPECT_EQ(found->value, -1.5f);
  EXPECT_EQ(find_beyond(view, 2.0f)->column, 2u);
}

// What largest_encodable promises: encoded and decoded, it comes back close to what it was, beside
// zeros and beside its own opposite.
TEST(Finite, TheLargestEncodableSurvivesInEveryType) {
  for (const DType type :
       {DType::f32, DType::f16, DType::bf16, DType::q8_0, DType::q4_0, DType::q4_1, DType::q5_0,
        DType::q5_1, DType::q4_k, DType::q5_k, DType::q6_k}) {
    const float largest = largest_encodable(type);
    for (const float other : {0.0f, -largest}) {
      std::vector<float> values(info(type).block_values, other), back(values.size());
      values[0] = largest;
      std::vector<std::byte> bytes(row_bytes(type, values.size()));
      quantize(type, values, bytes);
      dequantize(type, bytes, back);
      EXPECT_NEAR(back[0], largest, 0.15 * largest) << info(type).name << " beside " << other;
    }
  }
}

}  // namespace
}  // namespace tyto
