// Packed float matrices on every instruction set against plain loops, on odd shapes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <ostream>
#include <random>

#include "device/cpu/inner_loops.h"
#include "device/cpu/packed_weights.h"
#include "tensor/float16.h"

namespace tyto::cpu {
namespace {

constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16};

std::vector<const InnerLoops*> variants() {
  std::vector<const InnerLoops*> result;
  for (const InnerLoops* loops : usable_inner_loops())
    if (loops->packed_floats != nullptr) result.push_back(loops);
  return result;
}

std::vector<float> random_values(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& value : values)
    value = static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 500.0f;
  return values;
}

struct Weights {
  Weights(DType type, size_t row_count, size_t columns, unsigned seed)
      : rows(row_count), k(columns), values(random_values(rows * k, seed)) {
    for (float& value : values) {
      const uint16_t half = type == DType::f16 ? f32_to_f16(value) : f32_to_bf16(value);
      if (type != DType::f32) value = type == DType::f16 ? f16_to_f32(half) : bf16_to_f32(half);
      const std::byte* from = type == DType::f32 ? reinterpret_cast<const std::byte*>(&value)
                                                 : reinterpret_cast<const std::byte*>(&half);
      bytes.insert(bytes.end(), from, from + row_bytes(type, 1));
    }
    view = {type, rows, k, bytes};
  }

  size_t rows, k;
  std::vector<float> values;  // [rows, k], as stored
  std::vector<std::byte> bytes;
  TensorView view;
};

// y for all tokens, each row with a value before and after it that must not change. The panels
// are multiplied `at_once` together.
std::vector<float> run(const PackedFloatLoops& loops, const PackedMatrix& matrix, size_t tokens,
                       const std::vector<float>& x, size_t at_once = 1000) {
  std::vector<std::byte> prepared(tokens * loops.token_bytes(matrix.type, matrix.k));
  for (size_t i = 0; i < token_tiles(tokens, loops.tile_tokens); ++i)
    loops.prepare_tile(matrix.type, x.data(), matrix.k, matrix.k,
                       token_tile(tokens, loops.tile_tokens, i), prepared.data());
  std::vector<float> y(tokens * (matrix.rows + 2), -777.0f), aside(tokens * kFloatPanelRows);
  for (size_t p = 0; p < matrix.panel_count(); p += at_once)
    loops.multiply({&matrix, prepared.data(), tokens, p,
                    std::min(at_once, matrix.panel_count() - p), y.data() + 1, matrix.rows + 2,
                    aside.data()});
  return y;
}

class PackedFloatMatmulTest : public testing::TestWithParam<const InnerLoops*> {
 protected:
  void check(DType type, size_t rows, size_t k, size_t tokens) {
    const Weights weights(type, rows, k, 1);
    const PackedWeights packed = pack_weights(weights.view, pool_);
    auto x = random_values(tokens * k, 2);
    const auto y = run(loops_, packed.matrix, tokens, x);
    if (type == DType::bf16 && GetParam()->floats->rounds_to_bf16)
      for (float& value : x) value = bf16_to_f32(f32_to_bf16(value));
    for (size_t t = 0; t < tokens; ++t) {
      ASSERT_EQ(y[t * (rows + 2)], -777.0f);
      ASSERT_EQ(y[t * (rows + 2) + rows + 1], -777.0f);
      for (size_t r = 0; r < rows; ++r) {
        double expected = 0, magnitude = 0;
        for (size_t i = 0; i < k; ++i) {
          const double product = double{weights.values[r * k + i]} * x[t * k + i];
          expected += product;
          magnitude += std::fabs(product);
        }
        ASSERT_NEAR(y[t * (rows + 2) + 1 + r], expected, 1e-6 * magnitude + 1e-6)
            << info(type).name << " k=" << k << " rows=" << rows << " tokens=" << tokens;
      }
    }
  }

  const PackedFloatLoops& loops_ = *GetParam()->packed_floats;
  ThreadPool pool_{2};
};

TEST_P(PackedFloatMatmulTest, MatchesPlainLoopsOnOddShapes) {
  for (DType type : kTypes)
    for (size_t k : {1, 2, 7, 33, 64, 101})
      for (size_t rows : {1, 5, 16, 31, 32, 33, 50, 64})
        for (size_t tokens : {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 25})
          check(type, rows, k, tokens);
}

// Several chunks of k, a last one that is not whole, and more activations than stay in a cache.
TEST_P(PackedFloatMatmulTest, MatchesPlainLoopsOnLongRowsAndManyTokens) {
  for (DType type : kTypes) {
    for (size_t tokens : {1, 4, 14}) check(type, 37, 9001, tokens);
    check(type, 70, 1101, 301);
  }
}

// The continuation law rests on this, to the last bit.
TEST_P(PackedFloatMatmulTest, ATokensResultDependsNeitherOnNeighboursNorOnTheCut) {
  for (DType type : kTypes) {
    const size_t k = 1077, rows = 101, tokens = 31;
    const Weights weights(type, rows, k, 3);
    const PackedWeights packed = pack_weights(weights.view, pool_);
    const auto x = random_values(tokens * k, 4);
    const auto together = run(loops_, packed.matrix, tokens, x);
    EXPECT_EQ(run(loops_, packed.matrix, tokens, x, 1), together);
    for (size_t count = 1; count <= 13; ++count) {
      const auto fewer = run(loops_, packed.matrix, count, {x.begin(), x.begin() + count * k});
      ASSERT_TRUE(std::equal(fewer.begin(), fewer.end(), together.begin())) << info(type).name;
    }
    for (size_t t = 0; t < tokens; ++t) {
      const auto alone =
          run(loops_, packed.matrix, 1, {x.begin() + t * k, x.begin() + (t + 1) * k});
      for (size_t r = 0; r < rows; ++r)
        ASSERT_EQ(alone[1 + r], together[t * (rows + 2) + 1 + r]) << info(type).name;
    }
  }
}

TEST_P(PackedFloatMatmulTest, F32ProductsGiveTheSameBitsInEveryWidth) {
  for (DType type : kTypes) {
    if (type == DType::bf16 && GetParam()->floats->rounds_to_bf16) continue;
    const Weights weights(type, 40, 777, 5);
    const PackedWeights packed = pack_weights(weights.view, pool_);
    for (size_t tokens : {1, 11, 14}) {
      const auto x = random_values(tokens * 777, 6);
      EXPECT_EQ(run(loops_, packed.matrix, tokens, x),
                run(*variants().front()->packed_floats, packed.matrix, tokens, x))
          << info(type).name;
    }
  }
}

TEST_P(PackedFloatMatmulTest, ZerosGiveZerosAndNanStaysWithItsToken) {
  for (DType type : kTypes) {
    const size_t k = 65, rows = 20;
    const Weights weights(type, rows, k, 7);
    const PackedWeights packed = pack_weights(weights.view, pool_);
    const auto zeros = run(loops_, packed.matrix, 1, std::vector<float>(k));
    for (size_t r = 0; r < rows; ++r) EXPECT_EQ(zeros[1 + r], 0.0f);
    for (float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
      for (size_t place : {size_t{40}, k - 1}) {
        auto x = random_values(3 * k, 8);
        x[k + place] = bad;
        const auto y = run(loops_, packed.matrix, 3, x);
        for (size_t r = 0; r < rows; ++r) {
          EXPECT_TRUE(std::isfinite(y[1 + r]));
          const bool counts = weights.values[r * k + place] != 0.0f;
          EXPECT_TRUE(!counts || !std::isfinite(y[rows + 2 + 1 + r]));
          EXPECT_TRUE(std::isfinite(y[2 * (rows + 2) + 1 + r]));
        }
      }
  }
}

INSTANTIATE_TEST_SUITE_P(AllIsas, PackedFloatMatmulTest, testing::ValuesIn(variants()),
                         [](const auto& variant) { return std::string(variant.param->name); });

// Byte by byte as packed_weights.h says, for shapes that end anywhere in a tile of the packing.
TEST(PackedFloats, EachValueHasItsPlaceAndTheRestIsZero) {
  ThreadPool pool(2);
  for (DType type : kTypes)
    for (size_t rows : {1, 3, 8, 31, 32, 45})
      for (size_t k : {1, 2, 9, 64, 131, 1030}) {
        const Weights weights(type, rows, k, 9);
        const PackedWeights packed = pack_weights(weights.view, pool);
        const size_t width = row_bytes(type, 1);
        const size_t panel_size = packed_layout(type).panel_size(k);
        ASSERT_EQ(packed.bytes, (rows + 31) / 32 * panel_size);
        ASSERT_EQ(panel_size, (k + 1) / 2 * 2 * 32 * width);
        std::vector<std::byte> expected(packed.bytes);
        for (size_t r = 0; r < rows; ++r)
          for (size_t i = 0; i < k; ++i) {
            const size_t within =
                type == DType::bf16 ? i / 2 * 64 + r % 32 * 2 + i % 2 : i * 32 + r % 32;
            std::memcpy(expected.data() + r / 32 * panel_size + within * width,
                        weights.bytes.data() + (r * k + i) * width, width);
          }
        ASSERT_EQ(std::memcmp(expected.data(), packed.matrix.panels, packed.bytes), 0)
            << info(type).name << " k=" << k << " rows=" << rows;
      }
}

}  // namespace
}  // namespace tyto::cpu
