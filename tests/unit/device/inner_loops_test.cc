// Every instruction-set variant against plain double-precision loops, on odd shapes.
#include "device/cpu/inner_loops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <random>
#include <vector>

#include "base/error.h"
#include "support/print_inner_loops.h"
#include "tensor/float16.h"
#include "tensor/quant.h"

namespace tyto::cpu {
namespace {

std::vector<float> random_values(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& value : values)
    value = static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 500.0f;
  return values;
}

std::vector<std::byte> stored(const std::vector<float>& values, DType type) {
  std::vector<std::byte> bytes(row_bytes(type, values.size()));
  quantize(type, values, bytes);
  return bytes;
}

std::vector<float> decoded(DType type, const std::vector<std::byte>& bytes, size_t count) {
  std::vector<float> values(count);
  dequantize(type, bytes, values);
  return values;
}

class InnerLoopsTest : public testing::TestWithParam<const InnerLoops*> {
 protected:
  // y for all tokens, each row with a value before and after it that must not change.
  std::vector<float> multiply(DType type, const std::vector<std::byte>& weights, size_t rows,
                              size_t k, size_t tokens, const std::vector<float>& x) {
    const FloatLoops& floats = *loops_.floats;
    // Exactly as large as promised: reading past the end would show under a sanitizer.
    std::vector<std::byte> prepared(tokens * floats.token_bytes(type, k));
    for (size_t i = 0; i < token_tiles(tokens, floats.tile_tokens); ++i)
      floats.prepare_tile(type, x.data(), k, k, token_tile(tokens, floats.tile_tokens, i),
                          prepared.data());
    std::vector<float> y(tokens * (rows + 2), -777.0f);
    floats.multiply({weights.data(), type, k, row_bytes(type, k), 0, rows, prepared.data(), tokens,
                     y.data() + 1, rows + 2});
    return y;
  }
  void check(DType type, size_t rows, size_t k, size_t tokens) {
    auto x = random_values(tokens * k, 1);
    const auto weights = stored(random_values(rows * k, 2), type);
    const auto w = decoded(type, weights, rows * k);
    const auto y = multiply(type, weights, rows, k, tokens, x);
    if (rounds_to_bf16(type))
      for (float& value : x) value = bf16_to_f32(f32_to_bf16(value));
    for (size_t t = 0; t < tokens; ++t) {
      ASSERT_EQ(y[t * (rows + 2)], -777.0f);
      ASSERT_EQ(y[t * (rows + 2) + rows + 1], -777.0f);
      for (size_t r = 0; r < rows; ++r) {
        double expected = 0, magnitude = 0;
        for (size_t i = 0; i < k; ++i) {
          expected += double{w[r * k + i]} * x[t * k + i];
          magnitude += std::fabs(double{w[r * k + i]} * x[t * k + i]);
        }
        ASSERT_NEAR(y[t * (rows + 2) + 1 + r], expected, 1e-6 * magnitude + 1e-6)
            << info(type).name << " k=" << k << " rows=" << rows << " tokens=" << tokens;
      }
    }
  }
  // Activations meet bf16 weights as bf16 where the processor has an instruction for it.
  bool rounds_to_bf16(DType type) const {
    return type == DType::bf16 && loops_.floats->rounds_to_bf16;
  }

  const InnerLoops& loops_ = *GetParam();
};

TEST_P(InnerLoopsTest, MatmulMatchesPlainLoopsOnOddShapes) {
  for (DType type : {DType::f32, DType::f16, DType::bf16})
    for (size_t k : {1, 7, 8, 33, 64, 100, 1100})
      for (size_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 37})
        for (size_t tokens : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13}) check(type, rows, k, tokens);
}

// Rows so long that few, or less than a tile of them, fit into the cache together.
TEST_P(InnerLoopsTest, MatmulMatchesPlainLoopsOnLongRows) {
  for (DType type : {DType::f32, DType::f16, DType::bf16})
    for (size_t k : {9001, 70001})
      for (size_t tokens : {1, 4, 13}) check(type, 19, k, tokens);
}

TEST_P(InnerLoopsTest, MatmulMatchesPlainLoopsOnManyTokens) {
  for (DType type : {DType::f32, DType::f16, DType::bf16}) check(type, 37, 1100, 301);
}

// The continuation law rests on this: a token's result does not depend on its neighbours.
TEST_P(InnerLoopsTest, MatmulResultDoesNotDependOnTheNumberOfTokens) {
  for (DType type : {DType::f32, DType::f16, DType::bf16}) {
    const size_t k = 1077, rows = 21, tokens = 13;
    const auto x = random_values(tokens * k, 3);
    const auto weights = stored(random_values(rows * k, 4), type);
    const auto together = multiply(type, weights, rows, k, tokens, x);
    for (size_t t = 0; t < tokens; ++t) {
      const auto alone =
          multiply(type, weights, rows, k, 1, {x.begin() + t * k, x.begin() + (t + 1) * k});
      for (size_t r = 0; r < rows; ++r)
        ASSERT_EQ(together[t * (rows + 2) + 1 + r], alone[1 + r]) << info(type).name;
    }
  }
}

TEST_P(InnerLoopsTest, PlainMatmulTakesStrides) {
  const size_t k = 21, rows = 7, tokens = 3, w_stride = 24, x_stride = 23, y_stride = 9;
  const auto x = random_values(tokens * x_stride, 15), w = random_values(rows * w_stride, 16);
  std::vector<float> y(tokens * y_stride, -777.0f);
  loops_.matmul(
      {x.data(), x_stride, tokens, w.data(), DType::f32, rows, k, y.data(), y_stride, w_stride});
  for (size_t t = 0; t < tokens; ++t) {
    for (size_t r = 0; r < rows; ++r) {
      double expected = 0;
      for (size_t i = 0; i < k; ++i) expected += double{x[t * x_stride + i]} * w[r * w_stride + i];
      EXPECT_NEAR(y[t * y_stride + r], expected, 1e-4);
    }
    EXPECT_EQ(y[t * y_stride + rows], -777.0f);
  }
}

double gelu_tanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

TEST_P(InnerLoopsTest, ElementwiseLoops) {
  for (size_t count : {1, 5, 8, 16, 100, 700}) {
    const auto x = random_values(count, 8), w = random_values(count, 9);
    std::vector<float> y(count);
    loops_.rmsnorm(x.data(), w.data(), y.data(), count, 1e-5f);
    double squares = 0;
    for (float value : x) squares += double{value} * value;
    const double scale = 1 / std::sqrt(squares / static_cast<double>(count) + 1e-5);
    for (size_t i = 0; i < count; ++i) EXPECT_NEAR(y[i], x[i] * scale * w[i], 1e-5);
    loops_.swiglu(Activation::silu, x.data(), w.data(), y.data(), count);
    for (size_t i = 0; i < count; ++i)
      EXPECT_NEAR(y[i], x[i] / (1 + std::exp(-double{x[i]})) * w[i], 1e-6);
    loops_.swiglu(Activation::gelu_tanh, x.data(), w.data(), y.data(), count);
    for (size_t i = 0; i < count; ++i) EXPECT_NEAR(y[i], gelu_tanh(x[i]) * w[i], 1e-6);
    loops_.swiglu(Activation::sigmoid, x.data(), w.data(), y.data(), count);
    for (size_t i = 0; i < count; ++i)
      EXPECT_NEAR(y[i], w[i] / (1 + std::exp(-double{x[i]})), 1e-6);
    auto sum = x;
    loops_.add(sum.data(), w.data(), count);
    for (size_t i = 0; i < count; ++i) EXPECT_EQ(sum[i], x[i] + w[i]);
  }
}

// The plain definition of a recurrence's token.
void recur_plainly(std::vector<double>& state, size_t rows, const RecurrenceToken& token,
                   const float* values, float* out) {
  for (size_t c = 0; c < kRecurrenceColumns; ++c) {
    double found = 0, answer = 0;
    for (size_t r = 0; r < rows; ++r) found += state[r * kRecurrenceColumns + c] * token.key[r];
    const double added = token.write * (values[c] - token.read * found);
    for (size_t r = 0; r < rows; ++r) {
      double& value = state[r * kRecurrenceColumns + c];
      value = token.decay * value + token.key[r] * added;
      answer += value * token.query[r];
    }
    out[c] = static_cast<float>(token.answer * answer + token.skip * values[c]);
  }
}

TEST_P(InnerLoopsTest, RecurrencesAreThoseOfPlainLoops) {
  for (const size_t rows : {1, 7, 16, 128})
    for (const float read : {0.0f, 0.9f}) {
      std::vector<float> state(rows * kRecurrenceColumns, 0.0f), y(kRecurrenceColumns),
          plain_y(kRecurrenceColumns);
      std::vector<double> plain(state.size(), 0.0);
      for (unsigned t = 0; t < 20; ++t) {
        const auto key = random_values(rows, 3 * t), query = random_values(rows, 3 * t + 1);
        const auto values = random_values(kRecurrenceColumns, 3 * t + 2);
        const auto factor = 1.0f / static_cast<float>(rows);
        const RecurrenceToken token{key.data(),    query.data(), 0.9f, read * factor,
                                    0.5f * factor, 0.25f,        read};
        loops_.recurrent->recur(state.data(), rows, token, values.data(), y.data());
        recur_plainly(plain, rows, token, values.data(), plain_y.data());
        for (size_t c = 0; c < y.size(); ++c)
          ASSERT_NEAR(y[c], plain_y[c], 2e-5) << rows << " " << t;
      }
    }
}

TEST_P(InnerLoopsTest, ANumberThatIsNoneStaysInItsColumnOfAState) {
  std::vector<float> state(8 * kRecurrenceColumns, 1.0f), y(kRecurrenceColumns);
  const std::vector<float> key(8, 0.5f);
  std::vector<float> values(kRecurrenceColumns, 1.0f);
  values[3] = std::numeric_limits<float>::quiet_NaN();
  const RecurrenceToken token{key.data(), key.data(), 0.5f, 0.1f, 1.0f, 1.0f, 0.0f};
  loops_.recurrent->recur(state.data(), 8, token, values.data(), y.data());
  for (size_t c = 0; c < y.size(); ++c) EXPECT_EQ(std::isnan(y[c]), c == 3) << c;
}

TEST_P(InnerLoopsTest, SquaredReluIsZeroBelowZeroAndKeepsWhatIsNoNumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> x = {-1e30f, -2.0f, -0.0f, 0.0f, 0.5f, 3.0f, 1e10f, nan, 2.0f};
  std::vector<float> y(x.size());
  loops_.swiglu(Activation::relu, x.data(), x.data(), y.data(), x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i]))
      EXPECT_TRUE(std::isnan(y[i]));
    else
      EXPECT_EQ(y[i], x[i] > 0 ? x[i] * x[i] : 0.0f) << x[i];
  }
}

TEST_P(InnerLoopsTest, SwigluIsRightAtTheEndsOfTheScale) {
  const std::vector<float> gate = {0.0f,   -0.0f,   1e-30f, -1e-30f, 20.0f, -20.0f, 88.0f, -88.0f,
                                   100.0f, -100.0f, 1e30f,  -1e30f,  1e-3f, -1e-3f, 3.0f,  -3.0f};
  const std::vector<float> up(gate.size(), 2.0f);
  std::vector<float> y(gate.size());
  loops_.swiglu(Activation::silu, gate.data(), up.data(), y.data(), gate.size());
  for (size_t i = 0; i < gate.size(); ++i) {
    const double expected = gate[i] / (1 + std::exp(-double{gate[i]})) * 2.0;
    // Where the exponential saturates nothing is left that matters.
    EXPECT_NEAR(y[i], expected, 3e-7 * std::fabs(expected) + 1e-7) << gate[i];
  }
  // Any cut gives the same values.
  std::vector<float> part(gate.size());
  for (size_t i = 0; i < gate.size(); ++i)
    loops_.swiglu(Activation::silu, gate.data() + i, up.data() + i, part.data() + i, 1);
  EXPECT_EQ(part, y);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  loops_.swiglu(Activation::silu, &nan, up.data(), y.data(), 1);
  EXPECT_TRUE(std::isnan(y[0]));
}

TEST_P(InnerLoopsTest, ASigmoidGateIsOpenAtOneEndOfTheScaleAndClosedAtTheOther) {
  const std::vector<float> gate = {0.0f,   -0.0f, 1e-30f, 20.0f, -20.0f, 88.0f, -88.0f,
                                   100.0f, 1e30f, -1e30f, 3.0f,  -3.0f,  1e-3f};
  const std::vector<float> up(gate.size(), -2.0f);
  std::vector<float> y(gate.size()), part(gate.size());
  loops_.swiglu(Activation::sigmoid, gate.data(), up.data(), y.data(), gate.size());
  for (size_t i = 0; i < gate.size(); ++i) {
    EXPECT_NEAR(y[i], -2.0 / (1 + std::exp(-double{gate[i]})), 1e-6) << gate[i];
    loops_.swiglu(Activation::sigmoid, gate.data() + i, up.data() + i, part.data() + i, 1);
  }
  EXPECT_EQ(part, y);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  loops_.swiglu(Activation::sigmoid, &nan, up.data(), y.data(), 1);
  EXPECT_TRUE(std::isnan(y[0]));
}

TEST_P(InnerLoopsTest, GeluIsRightAtTheEndsOfTheScale) {
  const std::vector<float> gate = {0.0f,  -0.0f, 1e-30f, -1e-30f, 10.0f, -10.0f, 1e9f,
                                   -1e9f, 1e-3f, -1e-3f, 3.0f,    -3.0f, 6.0f};
  const std::vector<float> up(gate.size(), 2.0f);
  std::vector<float> y(gate.size()), part(gate.size());
  loops_.swiglu(Activation::gelu_tanh, gate.data(), up.data(), y.data(), gate.size());
  for (size_t i = 0; i < gate.size(); ++i) {
    const double expected = 2 * gelu_tanh(gate[i]);
    EXPECT_NEAR(y[i], expected, 1e-6 * std::fabs(expected) + 1e-7) << gate[i];
    loops_.swiglu(Activation::gelu_tanh, gate.data() + i, up.data() + i, part.data() + i, 1);
  }
  EXPECT_EQ(part, y);
}

TEST_P(InnerLoopsTest, SoftCapIsATanhToTheLastDigits) {
  std::vector<float> x = {0.0f, -0.0f, 1e-30f, 1e30f, -1e30f, 1e-4f, -1e-4f};
  for (int i = -400; i <= 400; ++i) x.push_back(static_cast<float>(i) * 0.731f);
  std::vector<float> y(x.size()), part(x.size());
  for (const float cap : {0.5f, 30.0f, 50.0f}) {
    loops_.soft_cap(x.data(), cap, y.data(), x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      const double expected = cap * std::tanh(double{x[i]} / cap);
      EXPECT_NEAR(y[i], expected, 6e-7 * std::fabs(expected)) << x[i] << " under " << cap;
      EXPECT_LE(std::fabs(y[i]), cap);
      loops_.soft_cap(x.data() + i, cap, part.data() + i, 1);
    }
    EXPECT_EQ(part, y);
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  loops_.soft_cap(&nan, 30.0f, y.data(), 1);
  EXPECT_TRUE(std::isnan(y[0]));
}

TEST_P(InnerLoopsTest, RotateTurnsPairs) {
  for (size_t half : {1, 4, 10, 32}) {
    const auto x = random_values(2 * half, 11), cosines = random_values(half, 12),
               sines = random_values(half, 13);
    for (bool pairs : {false, true}) {
      auto head = x;
      loops_.rotate(head.data(), cosines.data(), sines.data(), half, pairs);
      for (size_t i = 0; i < half; ++i) {
        const size_t a = pairs ? 2 * i : i, b = pairs ? 2 * i + 1 : i + half;
        EXPECT_NEAR(head[a], x[a] * cosines[i] - x[b] * sines[i], 2e-6);
        EXPECT_NEAR(head[b], x[b] * cosines[i] + x[a] * sines[i], 2e-6);
      }
    }
  }
}

TEST_P(InnerLoopsTest, DotOfBytesIsExact) {
  std::mt19937 random(3);
  for (size_t count : {0, 1, 3, 31, 64, 100, 1027}) {
    std::vector<int8_t> x(count), y(count);
    int32_t expected = 0;
    for (size_t i = 0; i < count; ++i) {
      x[i] = static_cast<int8_t>(static_cast<int>(random() % 255) - 127);
      y[i] = static_cast<int8_t>(static_cast<int>(random() % 255) - 127);
      expected += int32_t{x[i]} * y[i];
    }
    EXPECT_EQ(loops_.dot_i8(x.data(), y.data(), count), expected) << count;
  }
  const std::vector<int8_t> least(1 << 17, -127);
  EXPECT_EQ(loops_.dot_i8(least.data(), least.data(), least.size() - 1),
            127 * 127 * ((1 << 17) - 1));
}

TEST_P(InnerLoopsTest, WidenAndNarrowAgreeWithTheScalarConversions) {
  auto values = random_values(37, 10);
  values[3] = std::numeric_limits<float>::infinity();
  values[20] = 0x1.fffffep127f;  // rounds to infinity
  std::vector<uint16_t> half(values.size());
  loops_.narrow(DType::f16, values.data(), half.data(), values.size());
  std::vector<float> wide(values.size());
  loops_.widen(DType::f16, half.data(), wide.data(), half.size());
  std::vector<uint16_t> bf16;
  for (size_t i = 0; i < half.size(); ++i) {
    EXPECT_EQ(half[i], f32_to_f16(values[i]));
    EXPECT_EQ(wide[i], f16_to_f32(half[i]));
    bf16.push_back(f32_to_bf16(values[i]));
  }
  loops_.narrow(DType::bf16, values.data(), half.data(), values.size());
  EXPECT_EQ(half, bf16);
  loops_.widen(DType::bf16, bf16.data(), wide.data(), bf16.size());
  for (size_t i = 0; i < bf16.size(); ++i) EXPECT_EQ(wide[i], bf16_to_f32(bf16[i]));
}

TEST_P(InnerLoopsTest, NarrowToBlocksStaysWithinHalfAStep) {
  auto values = random_values(96, 14);
  for (size_t i = 32; i < 64; ++i) values[i] = 0;
  std::vector<std::byte> blocks(row_bytes(DType::q8_0, values.size()));
  loops_.narrow(DType::q8_0, values.data(), blocks.data(), values.size());
  const auto back = decoded(DType::q8_0, blocks, values.size());
  for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(back[i], values[i], 2.01 / 127 / 2);
  for (size_t i = 32; i < 64; ++i) EXPECT_EQ(back[i], 0.0f);
  values[70] = std::numeric_limits<float>::infinity();
  loops_.narrow(DType::q8_0, values.data(), blocks.data(), values.size());
  const auto bad = decoded(DType::q8_0, blocks, values.size());
  EXPECT_TRUE(std::isnan(bad[70]));
  EXPECT_EQ(bad[0], back[0]);
}

INSTANTIATE_TEST_SUITE_P(AllIsas, InnerLoopsTest,
                         testing::ValuesIn(usable_inner_loops().begin(),
                                           usable_inner_loops().end()),
                         [](const auto& variant) { return std::string(variant.param->name); });

TEST(InnerLoops, AreFoundByName) {
  for (const InnerLoops* loops : usable_inner_loops())
    EXPECT_EQ(&inner_loops_named(loops->name), loops);
  EXPECT_STREQ(usable_inner_loops().front()->name, "generic");
  try {
    inner_loops_named("abacus");
    FAIL() << "found";
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::usage);
    EXPECT_NE(error.hint.find("generic"), std::string::npos);
  }
}

}  // namespace
}  // namespace tyto::cpu
