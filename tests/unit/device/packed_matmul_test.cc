// Packed matrices on every instruction set against plain loops over the same codes, on odd shapes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <ostream>
#include <random>

#include "device/cpu/inner_loops.h"
#include "device/cpu/packed_weights.h"
#include "device/cpu/weight_cache.h"
#include "support/random_blocks.h"
#include "tensor/quant.h"

namespace tyto::cpu {

// AVX-VNNI's kernels with the same instructions in AVX-512's encoding (see tests/CMakeLists.txt).
namespace avxvnni_evex {
const PackedLoops* packed_loops();
}

namespace {

struct Variant {
  std::string name;
  const PackedLoops* loops;
};

void PrintTo(const Variant& variant, std::ostream* out) {
  *out << variant.name;
}

std::vector<Variant> packed_variants() {
  std::vector<Variant> result;
  for (const InnerLoops* loops : usable_inner_loops())
    if (loops->packed != nullptr) result.push_back({loops->name, loops->packed});
  if (!result.empty() && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni"))
    result.push_back({"avxvnni_evex", avxvnni_evex::packed_loops()});
  return result;
}

// Types on a grid share a kernel, and two of them do.
constexpr DType kPackedTypes[] = {DType::q8_0,  DType::q4_0,    DType::q4_1,   DType::q5_0,
                                  DType::q5_1,  DType::q4_k,    DType::q5_k,   DType::q6_k,
                                  DType::q2_k,  DType::q3_k,    DType::iq4_nl, DType::iq4_xs,
                                  DType::mxfp4, DType::iq3_xxs, DType::iq1_m};

std::vector<float> random_weights(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& value : values)
    value = static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 500.0f;
  return values;
}

struct MadeWeights {
  MadeWeights(DType type, size_t row_count, size_t columns, unsigned seed)
      : rows(row_count), k(columns), bytes(row_count * row_bytes(type, columns)) {
    std::mt19937 random(seed);
    if (is_encodable(type))
      quantize(type, random_weights(rows * k, seed), bytes);
    else
      bytes = testing_support::random_blocks(type, rows * k, 2, random);
    view = {type, rows, k, bytes};
    decode();
  }
  void decode() {
    values.resize(rows * k);
    dequantize(view.dtype, bytes, values);
  }

  size_t rows, k;
  std::vector<std::byte> bytes;
  TensorView view;
  std::vector<float> values;  // [rows, k]
};

// What a kernel must make of a token: codes of eight bits and a scale for each 32 values.
std::vector<double> rounded(std::span<const float> x) {
  std::vector<double> result;
  for (size_t block = 0; block < x.size(); block += kBlockValues) {
    float most = 0;
    for (size_t i = 0; i < kBlockValues; ++i) most = std::max(most, std::fabs(x[block + i]));
    const float factor = most > 0 ? 127.0f / most : 0.0f;
    for (size_t i = 0; i < kBlockValues; ++i)
      result.push_back(std::nearbyint(x[block + i] * factor) * double{most} / 127.0);
  }
  return result;
}

// y for all tokens, each row with a value at its end that must not change.
std::vector<float> run(const PackedLoops& loops, const PackedMatrix& matrix, size_t tokens,
                       const std::vector<float>& x) {
  const size_t blocks = tokens * matrix.k / kBlockValues;
  std::vector<int8_t> codes(blocks * kBlockValues);
  std::vector<int16_t> wide(blocks * kBlockValues);
  std::vector<float> scales(blocks), scaled_sum(blocks), aside(tokens * kPanelRows);
  std::vector<int32_t> negated_sum(blocks), negated_half_sums(2 * blocks);
  const BlockActivations prepared{
      codes.data(),     wide.data(), scales.data(), negated_sum.data(), negated_half_sums.data(),
      scaled_sum.data()};
  for (size_t i = 0; i < token_tiles(tokens, loops.tile_tokens); ++i)
    loops.quantize_tile(x.data(), matrix.k, matrix.k, token_tile(tokens, loops.tile_tokens, i),
                        prepared);
  const size_t stride = matrix.rows + 1;
  std::vector<float> y(tokens * stride, -777.0f);
  loops.multiply(
      {&matrix, prepared, tokens, 0, matrix.panel_count(), y.data(), stride, aside.data()});
  return y;
}

class PackedMatmulTest : public testing::TestWithParam<Variant> {
 protected:
  const PackedLoops& loops_ = *GetParam().loops;
  ThreadPool pool_{2};
};

TEST(PackedLayout, TilesCoverTheTokensEvenly) {
  for (size_t most : {4, 6})
    for (size_t tokens = 1; tokens <= 40; ++tokens) {
      size_t next = 0;
      for (size_t i = 0; i < token_tiles(tokens, most); ++i) {
        const TokenTile tile = token_tile(tokens, most, i);
        EXPECT_EQ(tile.first, next);
        EXPECT_GE(tile.count, tokens / token_tiles(tokens, most));
        EXPECT_LE(tile.count, most);
        next += tile.count;
      }
      EXPECT_EQ(next, tokens);
    }
}

TEST_P(PackedMatmulTest, MatchesPlainLoopsOnOddShapes) {
  for (DType type : kPackedTypes) {
    const size_t block = info(type).block_values;
    for (size_t k : {block, 3 * block, block == 32 ? size_t{544} : size_t{1280}})
      for (size_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 23, 32, 33, 50}) {
        const MadeWeights weights(type, rows, k, 1);
        const PackedWeights packed = pack_weights(weights.view, pool_);
        for (size_t tokens : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13}) {
          const auto x = random_weights(tokens * k, 2);
          const auto y = run(loops_, packed.matrix, tokens, x);
          for (size_t t = 0; t < tokens; ++t) {
            const auto token = rounded(std::span(x).subspan(t * k, k));
            ASSERT_EQ(y[t * (rows + 1) + rows], -777.0f);
            for (size_t r = 0; r < rows; ++r) {
              double expected = 0, magnitude = 0;
              for (size_t i = 0; i < k; ++i) {
                expected += weights.values[r * k + i] * token[i];
                magnitude += std::fabs(weights.values[r * k + i] * token[i]);
              }
              ASSERT_NEAR(y[t * (rows + 1) + r], expected, 1e-6 * magnitude + 1e-6)
                  << info(type).name << " k=" << k << " rows=" << rows << " tokens=" << tokens;
            }
          }
        }
      }
  }
}

// The largest codes times the largest activations: sums that do not fit in 16 bits would show.
TEST_P(PackedMatmulTest, TheLargestCodesDoNotOverflow) {
  for (DType type : kPackedTypes) {
    const size_t k = 512, rows = 17;
    MadeWeights weights(type, rows, k, 3);
    for (int high : {0xff, 0x7f, 0x80, 0x81}) {
      for (std::byte& byte : weights.bytes) byte = static_cast<std::byte>(high);
      // Every f16 scale becomes one; the codes keep the pattern.
      const size_t block_bytes = info(type).block_bytes;
      const uint16_t one = 0x3c00;
      for (size_t at = 0; at < weights.bytes.size(); at += block_bytes) {
        std::byte* block = weights.bytes.data() + at;
        if (!is_encodable(type)) {
          testing_support::set_factor(type, block, 1);
        } else if (type == DType::q6_k) {
          std::memcpy(block + block_bytes - 2, &one, 2);
        } else {
          std::memcpy(block, &one, 2);
          if (type != DType::q8_0 && type != DType::q4_0 && type != DType::q5_0)
            std::memcpy(block + 2, &one, 2);
        }
      }
      weights.decode();
      const PackedWeights packed = pack_weights(weights.view, pool_);
      for (float sign : {1.0f, -1.0f})
        for (size_t tokens : {1, 5}) {
          const std::vector<float> x(tokens * k, sign);
          const auto y = run(loops_, packed.matrix, tokens, x);
          for (size_t t = 0; t < tokens; ++t)
            for (size_t r = 0; r < rows; ++r) {
              double expected = 0, magnitude = 0;
              for (size_t i = 0; i < k; ++i) {
                expected += sign * weights.values[r * k + i];
                magnitude += std::fabs(weights.values[r * k + i]);
              }
              ASSERT_NEAR(y[t * (rows + 1) + r], expected, 1e-5 * magnitude + 1e-3)
                  << info(type).name << " " << high << " tokens=" << tokens;
            }
        }
    }
  }
}

// The continuation law rests on this, to the last bit.
TEST_P(PackedMatmulTest, ATokensResultDoesNotDependOnItsNeighbours) {
  for (DType type : kPackedTypes) {
    const size_t k = 1280, rows = 50, tokens = 15;
    const MadeWeights weights(type, rows, k, 5);
    const PackedWeights packed = pack_weights(weights.view, pool_);
    const auto x = random_weights(tokens * k, 6);
    const auto together = run(loops_, packed.matrix, tokens, x);
    for (size_t t = 0; t < tokens; ++t) {
      const auto alone =
          run(loops_, packed.matrix, 1, {x.begin() + t * k, x.begin() + (t + 1) * k});
      for (size_t r = 0; r < rows; ++r)
        ASSERT_EQ(alone[r], together[t * (rows + 1) + r]) << info(type).name;
    }
  }
}

TEST_P(PackedMatmulTest, EveryInstructionSetGivesTheSameBits) {
  for (DType type : kPackedTypes) {
    const MadeWeights weights(type, 40, 768, 7);
    const PackedWeights packed = pack_weights(weights.view, pool_);
    for (size_t tokens : {1, 11}) {
      const auto x = random_weights(tokens * 768, 8);
      EXPECT_EQ(run(loops_, packed.matrix, tokens, x),
                run(*packed_variants().front().loops, packed.matrix, tokens, x))
          << info(type).name;
    }
  }
}

TEST_P(PackedMatmulTest, ZerosGiveZerosAndNanStaysVisible) {
  const MadeWeights weights(DType::q4_0, 20, 64, 9);
  const PackedWeights packed = pack_weights(weights.view, pool_);
  auto zeros = run(loops_, packed.matrix, 1, std::vector<float>(64));
  zeros.pop_back();
  EXPECT_EQ(zeros, std::vector<float>(20));
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                    -std::numeric_limits<float>::infinity()}) {
    auto x = random_weights(3 * 64, 10);
    x[64 + 40] = bad;
    const auto y = run(loops_, packed.matrix, 3, x);
    for (size_t r = 0; r < 20; ++r) {
      EXPECT_TRUE(std::isfinite(y[r]));
      EXPECT_TRUE(std::isnan(y[21 + r]));
      EXPECT_TRUE(std::isfinite(y[42 + r]));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllIsas, PackedMatmulTest, testing::ValuesIn(packed_variants()),
                         [](const auto& variant) { return variant.param.name; });

TEST(PackedStore, PacksOnceWhileSomebodyHoldsIt) {
  ThreadPool pool(2);
  const MadeWeights weights(DType::q8_0, 20, 64, 11);
  Trace trace;
  PackedStore store({}, trace);
  auto first = store.pack(weights.view, pool);
  EXPECT_EQ(store.pack(weights.view, pool), first);
  EXPECT_EQ(first->bytes, 2 * packed_layout(DType::q8_0).panel_size(64));
  // The weights in the test's own memory are still there: only a file's pages are given back.
  std::vector<float> again(weights.values.size());
  dequantize(DType::q8_0, weights.bytes, again);
  EXPECT_EQ(again, weights.values);
}

}  // namespace
}  // namespace tyto::cpu
