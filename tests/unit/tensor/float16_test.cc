#include "tensor/float16.h"

#include <gtest/gtest.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace tyto {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr uint32_t kHalves = 65536;

uint32_t bits(float value) {
  return std::bit_cast<uint32_t>(value);
}

float from_bits(uint32_t value) {
  return std::bit_cast<float>(value);
}

// Every f32 bit pattern is too many; this stride is odd, so it meets all low bits and exponents.
template <typename Check>
void for_many_floats(const Check& check) {
  for (uint64_t pattern = 0; pattern <= UINT32_MAX; pattern += 4099)
    check(from_bits(static_cast<uint32_t>(pattern)));
}

// The value of a half by the definition of the format.
double half_value(uint16_t half) {
  const int exponent = (half >> 10) & 31, mantissa = half & 1023;
  double value =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  if (exponent == 31) value = mantissa == 0 ? HUGE_VAL : std::nan("");
  return half >= 0x8000 ? -value : value;
}

TEST(Float16, EveryHalfDecodesExactly) {
  for (uint32_t half = 0; half < kHalves; ++half) {
    const float value = f16_to_f32(static_cast<uint16_t>(half));
    const double expected = half_value(static_cast<uint16_t>(half));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value)) << half;
    } else {
      ASSERT_EQ(value, expected) << half;
    }
    ASSERT_EQ(std::signbit(value), half >= 0x8000) << half;
  }
}

TEST(Float16, EveryHalfComesBack) {
  for (uint32_t half = 0; half < kHalves; ++half) {
    const bool is_nan = (half & 0x7fff) > 0x7c00;
    const uint32_t expected = is_nan ? half | 0x200 : half;  // a signalling NaN becomes quiet
    ASSERT_EQ(f32_to_f16(f16_to_f32(static_cast<uint16_t>(half))), expected) << half;
  }
}

// Between neighbours, below, at and above the middle; ties go to the even one.
TEST(Float16, RoundsToNearestEven) {
  for (uint32_t half = 0; half < 0x7c00; ++half) {
    const float low = f16_to_f32(static_cast<uint16_t>(half));
    // Beyond the largest half the middle is where 65536 would be its neighbour.
    const float high = half == 0x7bff ? 65536.0f : f16_to_f32(static_cast<uint16_t>(half + 1));
    const float middle = low + (high - low) / 2;
    const uint32_t even = half % 2 == 0 ? half : half + 1;
    for (const uint32_t sign : {0u, 0x8000u}) {
      const float factor = sign == 0 ? 1.0f : -1.0f;
      ASSERT_EQ(f32_to_f16(factor * middle), sign | even) << half;
      ASSERT_EQ(f32_to_f16(factor * std::nextafter(middle, 0.0f)), sign | half) << half;
      ASSERT_EQ(f32_to_f16(factor * std::nextafter(middle, kInfinity)), sign | (half + 1)) << half;
    }
  }
}

TEST(Float16, ExtremesRoundToInfinityOrZero) {
  EXPECT_EQ(f32_to_f16(65504.0f), 0x7bff);
  EXPECT_EQ(f32_to_f16(std::nextafter(65520.0f, 0.0f)), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_f16(65536.0f), 0x7c00);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::max()), 0x7c00);
  EXPECT_EQ(f32_to_f16(-kInfinity), 0xfc00);
  EXPECT_EQ(f32_to_f16(0x1p-14f), 0x0400);
  EXPECT_EQ(f32_to_f16(0x1p-24f), 0x0001);
  EXPECT_EQ(f32_to_f16(0x1p-25f), 0x0000);
  EXPECT_EQ(f32_to_f16(0x1.000002p-25f), 0x0001);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::denorm_min()), 0x0000);
  EXPECT_EQ(f32_to_f16(-std::numeric_limits<float>::denorm_min()), 0x8000);
  EXPECT_EQ(f32_to_f16(-0.0f), 0x8000);
}

TEST(Float16, NansStayNans) {
  for (const uint32_t pattern : {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0xff800001u, 0x7fffffffu}) {
    const uint16_t half = f32_to_f16(from_bits(pattern));
    EXPECT_GT(half & 0x7fff, 0x7c00) << pattern;
    EXPECT_EQ(half >> 15, pattern >> 31) << pattern;
  }
}

TEST(Float16, OrderIsKept) {
  uint16_t last = 0;
  for (uint32_t pattern = 0; pattern < 0x7f800000u; pattern += 4099) {
    const uint16_t half = f32_to_f16(from_bits(pattern));
    ASSERT_GE(half, last);
    last = half;
  }
}

#if defined(__x86_64__)
__attribute__((target("f16c"))) uint16_t hardware_f32_to_f16(float value) {
  return _cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT);
}

__attribute__((target("f16c"))) float hardware_f16_to_f32(uint16_t half) {
  return _cvtsh_ss(half);
}

TEST(Float16, AgreesWithTheProcessor) {
  if (!__builtin_cpu_supports("f16c")) GTEST_SKIP() << "this processor has no F16C";
  for (uint32_t half = 0; half < kHalves; ++half) {
    // The processor also makes signalling NaNs quiet; nothing here depends on that bit.
    const uint32_t quiet = (half & 0x7fff) > 0x7c00 ? 0x400000 : 0;
    const uint16_t value = static_cast<uint16_t>(half);
    ASSERT_EQ(bits(f16_to_f32(value)) | quiet, bits(hardware_f16_to_f32(value))) << half;
  }
  for_many_floats(
      [](float value) { ASSERT_EQ(f32_to_f16(value), hardware_f32_to_f16(value)) << bits(value); });
}
#endif

TEST(BFloat16, EveryValueComesBack) {
  for (uint32_t pattern = 0; pattern < kHalves; ++pattern) {
    const uint16_t value = static_cast<uint16_t>(pattern);
    ASSERT_EQ(bits(bf16_to_f32(value)), pattern << 16);
    const bool is_nan = (pattern & 0x7fff) > 0x7f80;
    ASSERT_EQ(f32_to_bf16(bf16_to_f32(value)), is_nan ? pattern | 0x40 : pattern) << pattern;
  }
}

TEST(BFloat16, RoundsToNearestEven) {
  for (uint32_t high = 0; high < 0x7f80; ++high) {
    const uint32_t even = high % 2 == 0 ? high : high + 1;
    for (const uint32_t sign : {0u, 0x8000u}) {
      const uint32_t base = (sign | high) << 16;
      ASSERT_EQ(f32_to_bf16(from_bits(base | 0x7fff)), sign | high) << high;
      ASSERT_EQ(f32_to_bf16(from_bits(base | 0x8000)), sign | even) << high;
      ASSERT_EQ(f32_to_bf16(from_bits(base | 0x8001)), sign | (high + 1)) << high;
    }
  }
}

TEST(BFloat16, ExtremesRoundToInfinityAndNanStaysNan) {
  EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(f32_to_bf16(kInfinity), 0x7f80);
  EXPECT_EQ(f32_to_bf16(-kInfinity), 0xff80);
  EXPECT_EQ(f32_to_bf16(-0.0f), 0x8000);
  for (const uint32_t pattern : {0x7f800001u, 0xff800001u, 0x7fffffffu, 0xffffffffu})
    EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(from_bits(pattern))))) << pattern;
}

}  // namespace
}  // namespace tyto
