#include "tensor/quant.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/file.h"
#include "support/print_dtype.h"
#include "support/random_blocks.h"

namespace tyto {
namespace {

constexpr std::array kBlockTypes = {DType::q8_0, DType::q4_0, DType::q4_1, DType::q5_0,
                                    DType::q5_1, DType::q4_k, DType::q5_k, DType::q6_k};
constexpr std::array kKTypes = {DType::q4_k, DType::q5_k, DType::q6_k};
// Types whose encoding is settled by convention, not by a search.
constexpr std::array kSettledTypes = {DType::f16,  DType::bf16, DType::q8_0, DType::q4_0,
                                      DType::q4_1, DType::q5_0, DType::q5_1};
constexpr size_t kEncoded = 512;  // values of a fixture that ggml encoded; random blocks follow

using Bytes = std::vector<std::byte>;
using Floats = std::vector<float>;

Bytes fixture(const std::string& name) {
  const MappedFile file(std::string(TYTO_SOURCE_DIR) + "/tests/data/quant/" + name);
  return {file.bytes().begin(), file.bytes().end()};
}

Floats float_fixture(const std::string& name) {
  const Bytes bytes = fixture(name);
  Floats values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

Bytes encode(DType type, const Floats& values) {
  Bytes bytes(row_bytes(type, values.size()));
  quantize(type, values, bytes);
  return bytes;
}

Floats decode(DType type, const Bytes& bytes, size_t count) {
  Floats values(count);
  dequantize(type, bytes, values);
  return values;
}

Floats round_trip(DType type, const Floats& values) {
  return decode(type, encode(type, values), values.size());
}

double rms(const Floats& values) {
  double sum = 0;
  for (const float value : values) sum += double{value} * value;
  return std::sqrt(sum / static_cast<double>(values.size()));
}

double rms_difference(const Floats& a, const Floats& b) {
  Floats difference(a.size());
  for (size_t i = 0; i < a.size(); ++i) difference[i] = a[i] - b[i];
  return rms(difference);
}

Floats normal_values(size_t count, float spread, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, spread);
  Floats values(count);
  for (float& value : values) value = normal(random);
  return values;
}

void expect_same_bits(const Floats& actual, const Floats& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i)
    ASSERT_EQ(std::bit_cast<uint32_t>(actual[i]), std::bit_cast<uint32_t>(expected[i]))
        << "value " << i << ": " << actual[i] << " for " << expected[i];
}

std::string name_of(const testing::TestParamInfo<DType>& each) {
  return std::string(info(each.param).name);
}

class GgmlFixture : public testing::TestWithParam<DType> {};

TEST_P(GgmlFixture, DecodesToTheSameBits) {
  const std::string name(info(GetParam()).name);
  const Floats expected = float_fixture(name + ".f32");
  ASSERT_EQ(expected.size(), 768u);
  expect_same_bits(decode(GetParam(), fixture(name + ".blocks"), expected.size()), expected);
}

TEST_P(GgmlFixture, DecodesFromAnyAddress) {
  const std::string name(info(GetParam()).name);
  const Bytes blocks = fixture(name + ".blocks");
  const Floats expected = float_fixture(name + ".f32");
  for (size_t shift = 1; shift < 4; ++shift) {
    Bytes shifted(blocks.size() + shift);
    std::memcpy(shifted.data() + shift, blocks.data(), blocks.size());
    Floats actual(expected.size());
    dequantize(GetParam(), std::span(shifted).subspan(shift), actual);
    expect_same_bits(actual, expected);
  }
}

INSTANTIATE_TEST_SUITE_P(, GgmlFixture,
                         testing::Values(DType::f16, DType::bf16, DType::q8_0, DType::q4_0,
                                         DType::q4_1, DType::q5_0, DType::q5_1, DType::q4_k,
                                         DType::q5_k, DType::q6_k),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Read, GgmlFixture, testing::ValuesIn(testing_support::kReadTypes),
                         name_of);

// A grid has up to 2048 places of eight values: what ggml decodes from a thousand blocks of 256
// values, so that every place is met, is known by its hash. The bytes are the high ones of a linear
// congruence, with one bit of each factor cleared so that all are finite.
struct Decoded {
  DType type;
  std::vector<size_t> cleared;  // byte of a block
  uint8_t mask;
  uint64_t hash;  // FNV-1a of ggml's f32
};

const std::vector<Decoded> kDecoded = {
    {DType::q2_k, {81, 83}, 0xbf, 0xe57e459c0f993e74},
    {DType::q3_k, {109}, 0xbf, 0x96dde742eaa72997},
    {DType::iq4_nl, {1}, 0xbf, 0x9a021df2fb2caf70},
    {DType::iq4_xs, {1}, 0xbf, 0xa878dc407e29abdf},
    {DType::iq3_xxs, {1}, 0xbf, 0xeb5f36258ed5db53},
    {DType::iq3_s, {1}, 0xbf, 0xf5870b63d18e176b},
    {DType::iq2_xxs, {1}, 0xbf, 0x1e451c80046d44bb},
    {DType::iq2_xs, {1}, 0xbf, 0xfbd088df77c0e68b},
    {DType::iq2_s, {1}, 0xbf, 0x539dd4deb4b8d635},
    {DType::iq1_s, {1}, 0xbf, 0xbd311ca892ac8e1b},
    {DType::iq1_m, {55}, 0xbf, 0x3bdcc23a7864b52e},
    {DType::mxfp4, {0}, 0x7f, 0xdc64b832ec879bc7},
};

TEST(Quant, EveryPlaceOfEveryGridIsGgmls) {
  for (const Decoded& each : kDecoded) {
    const size_t values = 1024 * 256;
    Bytes bytes(row_bytes(each.type, values));
    uint32_t state = 1;
    for (std::byte& byte : bytes)
      byte = static_cast<std::byte>((state = state * 1664525 + 1013904223) >> 24);
    for (size_t at = 0; at < bytes.size(); at += info(each.type).block_bytes)
      for (const size_t place : each.cleared) bytes[at + place] &= std::byte{each.mask};
    uint64_t hash = 0xcbf29ce484222325;
    const Floats decoded = decode(each.type, bytes, values);
    for (const std::byte byte : std::as_bytes(std::span(decoded)))
      hash = (hash ^ std::to_integer<uint64_t>(byte)) * 0x100000001b3;
    EXPECT_EQ(hash, each.hash) << info(each.type).name;
  }
}

class ReadType : public testing::TestWithParam<DType> {};

TEST_P(ReadType, AnyBytesDecode) {
  std::mt19937_64 random(19);
  Bytes bytes(row_bytes(GetParam(), 256 * 50));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  (void)decode(GetParam(), bytes, 256 * 50);
}

INSTANTIATE_TEST_SUITE_P(, ReadType, testing::ValuesIn(testing_support::kReadTypes), name_of);

class Settled : public testing::TestWithParam<DType> {};

TEST_P(Settled, EncodesToTheSameBytesAsGgml) {
  Bytes expected = fixture(std::string(info(GetParam()).name) + ".blocks");
  expected.resize(row_bytes(GetParam(), kEncoded));
  const Bytes actual = encode(GetParam(), float_fixture("input.f32"));
  const size_t block = info(GetParam()).block_bytes;
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i)
    ASSERT_EQ(actual[i], expected[i]) << "byte " << i % block << " of block " << i / block;
}

INSTANTIATE_TEST_SUITE_P(, Settled, testing::ValuesIn(kSettledTypes), name_of);

class KType : public testing::TestWithParam<DType> {};

// Squared error is what the search minimises; ggml's own encoder is the mark.
TEST_P(KType, EncodesNoWorseThanGgml) {
  const Floats input = float_fixture("input.f32");
  Floats theirs = float_fixture(std::string(info(GetParam()).name) + ".f32");
  theirs.resize(kEncoded);
  Floats ours = round_trip(GetParam(), input);
  EXPECT_LE(rms_difference(ours, input), rms_difference(theirs, input));
  for (Floats* half : {&ours, &theirs}) half->resize(256);
  const Floats normal(input.begin(), input.begin() + 256);
  EXPECT_LE(rms_difference(ours, normal), rms_difference(theirs, normal));
}

TEST_P(KType, RelativeErrorOnNormalValues) {
  // What ggml's encoder reaches on such values: 0.0714, 0.0361, 0.0178.
  const double limit = GetParam() == DType::q4_k   ? 0.0714
                       : GetParam() == DType::q5_k ? 0.0361
                                                   : 0.0178;
  for (const float spread : {1.0f, 0.02f, 300.0f}) {
    const Floats values = normal_values(256 * 64, spread, 7);
    EXPECT_LT(rms_difference(round_trip(GetParam(), values), values), limit * rms(values));
  }
}

TEST_P(KType, HandlesSubBlocksOfVeryDifferentSize) {
  Floats values = normal_values(256 * 8, 1, 3);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] *= std::exp2(static_cast<float>(i / 32 % 8) - 4);
  EXPECT_LT(rms_difference(round_trip(GetParam(), values), values), 0.08 * rms(values));
}

INSTANTIATE_TEST_SUITE_P(, KType, testing::ValuesIn(kKTypes), name_of);

// Types of less than 8 bits, which use importance.
constexpr std::array kFewBits = {DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1,
                                 DType::q4_k, DType::q5_k, DType::q6_k};

class Important : public testing::TestWithParam<DType> {
 protected:
  static Floats round_trip(const Floats& values, const Floats& importance) {
    Bytes bytes(row_bytes(GetParam(), values.size()));
    quantize(GetParam(), values, bytes, importance);
    return decode(GetParam(), bytes, values.size());
  }
};

TEST_P(Important, ValuesThatMatterLoseLess) {
  const Floats values = normal_values(256 * 16, 1, 23);
  Floats importance(values.size());
  std::mt19937_64 random(29);
  for (float& each : importance) each = random() % 8 == 0 ? 1.0f : 0.02f;
  const auto weighted_error = [&](const Floats& decoded) {
    double sum = 0;
    for (size_t i = 0; i < values.size(); ++i)
      sum += importance[i] * std::pow(double{decoded[i]} - values[i], 2);
    return sum;
  };
  const double with = weighted_error(round_trip(values, importance));
  EXPECT_LT(with, 0.9 * weighted_error(tyto::round_trip(GetParam(), values)));
}

// All the same, whatever it is.
TEST_P(Important, EvenImportanceCostsLittle) {
  const Floats values = normal_values(256 * 16, 0.02f, 31);
  for (const float each : {1.0f, 1e-3f, 0.0f, 1e-38f}) {
    const Floats decoded = round_trip(values, Floats(values.size(), each));
    EXPECT_LT(rms_difference(decoded, values),
              1.2 * rms_difference(tyto::round_trip(GetParam(), values), values))
        << each;
  }
}

TEST_P(Important, AnyInputDecodesFinite) {
  const std::vector<float> odd = {std::numeric_limits<float>::infinity(),
                                  std::numeric_limits<float>::quiet_NaN(),
                                  -std::numeric_limits<float>::max(), 1e-40f, 0.0f};
  std::mt19937_64 random(37);
  for (int round = 0; round < 100; ++round) {
    Floats values = normal_values(256, round % 2 == 0 ? 1.0f : 1e-38f, random());
    Floats importance(256);
    for (float& each : importance)
      each = random() % 3 == 0 ? 0.0f : 1.0f / static_cast<float>(random() % 1000 + 1);
    for (int i = 0; i < 20; ++i) values[random() % 256] = odd[random() % odd.size()];
    for (const float value : round_trip(values, importance)) ASSERT_TRUE(std::isfinite(value));
  }
}

// Far from zero q4_1 and q5_1 need a min above it, which the search does not know.
TEST_P(Important, NoBlockIsWorseThanWithoutTheSearch) {
  Floats values = normal_values(32 * 64, 0.01f, 41);
  for (float& value : values) value += 1;
  const Floats decoded = round_trip(values, Floats(values.size(), 1.0f));
  EXPECT_LT(rms_difference(decoded, values),
            1.05 * rms_difference(tyto::round_trip(GetParam(), values), values));
}

INSTANTIATE_TEST_SUITE_P(, Important, testing::ValuesIn(kFewBits), name_of);

TEST(Quant, EightBitsDoNotHeedImportance) {
  const Floats values = normal_values(256, 1, 43);
  Bytes bytes(row_bytes(DType::q8_0, 256));
  quantize(DType::q8_0, values, bytes, Floats(256, 0.5f));
  EXPECT_EQ(bytes, encode(DType::q8_0, values));
}

class BlockType : public testing::TestWithParam<DType> {};

TEST_P(BlockType, ZerosStayZeros) {
  const Floats zeros(512, 0.0f);
  EXPECT_EQ(round_trip(GetParam(), zeros), zeros);
}

TEST_P(BlockType, ErrorIsBoundedByTheStep) {
  // Half a step of the widest sub-block, and what rounding the scales themselves costs.
  const int codes = GetParam() == DType::q8_0                 ? 255
                    : GetParam() == DType::q6_k               ? 64
                    : info(GetParam()).name.starts_with("q5") ? 32
                                                              : 16;
  std::mt19937_64 random(11);
  std::uniform_real_distribution<float> uniform(-1, 1);
  Floats values(256 * 32);
  for (float& value : values) value = uniform(random);
  const Floats decoded = round_trip(GetParam(), values);
  for (size_t i = 0; i < values.size(); ++i)
    ASSERT_LE(std::fabs(decoded[i] - values[i]), 2.3 / codes) << i;
}

TEST_P(BlockType, BlocksAreIndependent) {
  const size_t block = info(GetParam()).block_values;
  Floats values = normal_values(3 * block, 1, 5);
  const Bytes before = encode(GetParam(), values);
  for (size_t i = block; i < 2 * block; ++i) values[i] = std::numeric_limits<float>::quiet_NaN();
  const Bytes after = encode(GetParam(), values);
  const size_t bytes = info(GetParam()).block_bytes;
  EXPECT_TRUE(
      std::equal(before.begin(), before.begin() + static_cast<ptrdiff_t>(bytes), after.begin()));
  EXPECT_TRUE(std::equal(before.end() - static_cast<ptrdiff_t>(bytes), before.end(),
                         after.end() - static_cast<ptrdiff_t>(bytes)));
}

// Whatever the input, encoding is defined, and what it stores decodes to finite values.
TEST_P(BlockType, AnyInputDecodesFinite) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float max = std::numeric_limits<float>::max();
  const float tiny = std::numeric_limits<float>::denorm_min();
  const std::vector<float> odd = {inf,  -inf,  nan,    -nan,   max, -max,
                                  tiny, -tiny, 1e-40f, 1e-30f, 1e9f};
  std::mt19937_64 random(13);
  for (int round = 0; round < 200; ++round) {
    Floats values = normal_values(256, round % 2 == 0 ? 1.0f : 1e-38f, random());
    const size_t changes = 1 + random() % 256;
    for (size_t i = 0; i < changes; ++i) values[random() % 256] = odd[random() % odd.size()];
    for (const float value : round_trip(GetParam(), values)) ASSERT_TRUE(std::isfinite(value));
  }
  for (const float value : odd)
    for (const float decoded : round_trip(GetParam(), Floats(256, value)))
      ASSERT_TRUE(std::isfinite(decoded)) << value;
}

TEST_P(BlockType, ANanIsStoredAsZero) {
  Floats values = normal_values(256, 1, 17);
  values[40] = std::numeric_limits<float>::quiet_NaN();
  const Floats decoded = round_trip(GetParam(), values);
  EXPECT_LT(std::fabs(decoded[40]), 0.25f);
  EXPECT_LT(std::fabs(decoded[41] - values[41]), 0.35f);
}

TEST_P(BlockType, AnyBytesDecode) {
  std::mt19937_64 random(19);
  Bytes bytes(row_bytes(GetParam(), 256 * 50));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  (void)decode(GetParam(), bytes, 256 * 50);
}

INSTANTIATE_TEST_SUITE_P(, BlockType, testing::ValuesIn(kBlockTypes), name_of);

TEST(Quant, F32IsCopied) {
  const Floats values = {1.5f, -0.0f, std::numeric_limits<float>::infinity(), 1e-45f};
  expect_same_bits(round_trip(DType::f32, values), values);
}

TEST(Quant, PlainHalvesOfAnyLength) {
  for (const size_t count : {1, 2, 3, 7, 8, 9, 31, 100}) {
    const Floats values = normal_values(count, 1, count);
    for (const DType type : {DType::f16, DType::bf16}) {
      const Floats decoded = round_trip(type, values);
      for (size_t i = 0; i < count; ++i)
        ASSERT_NEAR(decoded[i], values[i],
                    std::fabs(values[i]) / (type == DType::f16 ? 2048 : 256));
    }
  }
}

TEST(Quant, EmptyIsFine) {
  for (const DType type : {DType::f32, DType::f16, DType::q8_0, DType::q4_k}) {
    dequantize(type, {}, {});
    quantize(type, {}, {});
  }
}

TEST(QuantDeathTest, SizesMustAgree) {
  Floats values(64);
  Bytes bytes(row_bytes(DType::q8_0, 64));
  EXPECT_DEATH(dequantize(DType::q8_0, std::span(bytes).first(34), values), "internal error");
  EXPECT_DEATH(quantize(DType::q4_0, values, bytes), "internal error");
  EXPECT_DEATH(quantize(DType::i32, values, std::as_writable_bytes(std::span(values))),
               "internal error");
  EXPECT_DEATH(quantize(DType::iq4_nl, values, std::span(bytes).first(36)), "internal error");
}

}  // namespace
}  // namespace tyto
