// Kernels with a state against plain loops: every instruction set, rows cut anywhere, sequences
// beside each other, states kept inside of a call.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include "device/cpu/interpreter.h"
#include "program/kernels.h"

namespace tyto {
namespace {

using Values = std::vector<float>;

constexpr uint32_t kStates = 6;

// A convolution of `width` values over `taps` rows, and what it works on.
struct Conv {
  Conv(uint32_t values, uint32_t positions, Activation applied, bool has_a_bias, uint32_t rows)
      : width(values), taps(positions), activation(applied), has_bias(has_a_bias) {
    program.slots = {{"x", SlotKind::input, DType::f32, rows, width},
                     {"weight", SlotKind::weight, DType::f32, 1, uint64_t{width} * taps},
                     {"state", SlotKind::state, DType::f32, uint64_t{kStates} * (taps - 1), width},
                     {"y", SlotKind::output, DType::f32, rows, width},
                     {"bias", SlotKind::weight, DType::f32, 1, width}};
    Launch launch{.kernel = Kernel::causal_conv,
                  .name = "conv",
                  .args = {{0, true, false}, {1, true, false}, {2, true, true}, {3, false, true}}};
    if (has_bias) launch.args.push_back({4, true, false});
    launch.shape.state_rows = taps - 1;
    launch.shape.activation = activation;
    program.launches = {launch};
    cpu::check_launches(program, "test");
    std::mt19937 random(5);
    const auto fill = [&](Values& to, size_t count) {
      for (size_t i = 0; i < count; ++i)
        to.push_back(static_cast<float>(random() % 2001) / 1000.0f - 1.0f);
    };
    fill(x, size_t{rows} * width);
    fill(weight, size_t{width} * taps);
    fill(bias, width);
    state.assign(size_t{kStates} * (taps - 1) * width, std::numeric_limits<float>::quiet_NaN());
  }

  Values run(const Call& call, const cpu::InnerLoops& loops = cpu::best_inner_loops(),
             unsigned threads = 1) {
    ThreadPool pool(threads);
    cpu::Interpreter interpreter(program, {}, loops);
    Values y(call.rows * width);
    std::byte* buffers[] = {
        reinterpret_cast<std::byte*>(x.data()), reinterpret_cast<std::byte*>(weight.data()),
        reinterpret_cast<std::byte*>(state.data()), reinterpret_cast<std::byte*>(y.data()),
        reinterpret_cast<std::byte*>(bias.data())};
    const auto problem = interpreter.why_not(buffers, call);
    EXPECT_EQ(problem, std::nullopt) << *problem;
    interpreter.run(buffers, call, pool);
    return y;
  }

  // The rows are those of one sequence, from its first on.
  Values plain(uint32_t rows) const {
    Values y;
    for (uint32_t t = 0; t < rows; ++t)
      for (uint32_t i = 0; i < width; ++i) {
        double sum = has_bias ? bias[i] : 0;
        for (uint32_t tap = 0; tap < taps; ++tap)
          if (t + tap + 1 >= taps)
            sum += double{weight[i * taps + tap]} * x[(t + tap + 1 - taps) * width + i];
        y.push_back(
            static_cast<float>(activation == Activation::silu ? sum / (1 + std::exp(-sum)) : sum));
      }
    return y;
  }

  Values state_of(uint32_t which) const {
    const auto begin = state.begin() + static_cast<std::ptrdiff_t>(which * (taps - 1) * width);
    return {begin, begin + static_cast<std::ptrdiff_t>((taps - 1) * width)};
  }

  uint32_t width, taps;
  Activation activation;
  bool has_bias;
  Program program;
  Values x, weight, bias, state;
};

Call one(uint32_t rows, uint32_t from, uint32_t to, std::span<const KeptState> kept = {}) {
  return {.rows = rows, .only = {.rows = rows, .state_from = from, .state_to = to, .kept = kept}};
}

TEST(CausalConv, EveryInstructionSetComputesThePlainSum) {
  for (const uint32_t taps : {2u, 3u, 4u})
    for (const uint32_t width : {5u, 64u, 99u})
      for (const bool has_bias : {false, true})
        for (const Activation activation : {Activation::none, Activation::silu})
          for (const cpu::InnerLoops* loops : cpu::usable_inner_loops()) {
            Conv conv(width, taps, activation, has_bias, 9);
            const Values y = conv.run(one(9, kNoState, 2), *loops, 2), expected = conv.plain(9);
            for (size_t i = 0; i < y.size(); ++i)
              ASSERT_NEAR(y[i], expected[i], 2e-6) << loops->name << " " << taps << " at " << i;
            const Values last(conv.x.end() - static_cast<std::ptrdiff_t>((taps - 1) * width),
                              conv.x.end());
            EXPECT_EQ(conv.state_of(2), last) << "the rows in front of the next";
          }
}

// In place too, and where a piece is shorter than what the next one looks back to.
TEST(CausalConv, CutsOfTheRowsChangeNoBit) {
  const Conv whole(70, 4, Activation::silu, true, 12);
  Conv conv = whole;
  const Values expected = conv.run(one(12, kNoState, 0));
  for (const std::vector<uint32_t>& cuts :
       {std::vector<uint32_t>{1, 1, 1, 9}, {2, 1, 7, 2}, {11, 1}}) {
    for (const bool in_place : {false, true}) {
      Conv parts = whole;
      Values y;
      uint32_t from = kNoState, done = 0;
      for (const uint32_t rows : cuts) {
        const uint32_t to = in_place ? 3 : from == 1 ? 2 : 1;
        parts.x.assign(whole.x.begin() + done * 70, whole.x.begin() + (done + rows) * 70);
        const Values more = parts.run(one(rows, from, to));
        y.insert(y.end(), more.begin(), more.end());
        from = to;
        done += rows;
      }
      EXPECT_EQ(y, expected) << in_place;
      EXPECT_EQ(parts.state_of(from), conv.state_of(0));
    }
  }
}

TEST(CausalConv, AStateInsideOfACallIsThatOfACallThatEndsThere) {
  Conv conv(33, 3, Activation::none, false, 8), shorter = conv, later = conv;
  const KeptState kept[] = {{1, 4}, {5, 5}};
  const Values y = conv.run(one(8, kNoState, 0, kept));
  shorter.run(one(5, kNoState, 0));
  EXPECT_EQ(conv.state_of(5), shorter.state_of(0));
  shorter.state.assign(shorter.state.size(), 0);
  shorter.run(one(1, kNoState, 0));
  EXPECT_EQ(conv.state_of(4), shorter.state_of(0));
  later.state = conv.state;
  later.x.erase(later.x.begin(), later.x.begin() + 5 * 33);
  const Values rest = later.run(one(3, 5, 1));
  EXPECT_EQ(rest, Values(y.begin() + 5 * 33, y.end()));
}

TEST(CausalConv, SequencesBesideEachOtherAreApart) {
  const Conv start(40, 3, Activation::none, false, 7);
  Conv both = start, first = start, second = start;
  const Segment segments[] = {{.first_row = 0, .rows = 3, .state_to = 0},
                              {.first_row = 3, .rows = 4, .state_to = 1}};
  const Values together = both.run(call_of(segments), cpu::best_inner_loops(), 2);
  second.x.erase(second.x.begin(), second.x.begin() + 3 * 40);
  Values apart = first.run(one(3, kNoState, 0));
  const Values more = second.run(one(4, kNoState, 1));
  apart.insert(apart.end(), more.begin(), more.end());
  EXPECT_EQ(together, apart);
}

TEST(CausalConv, NotANumberStaysInTheRowsThatLookAtIt) {
  Conv conv(20, 3, Activation::silu, false, 6);
  conv.x[20 + 7] = std::numeric_limits<float>::quiet_NaN();
  const Values y = conv.run(one(6, kNoState, 0));
  for (uint32_t t = 0; t < 6; ++t)
    for (uint32_t i = 0; i < 20; ++i)
      EXPECT_EQ(std::isnan(y[t * 20 + i]), i == 7 && t >= 1 && t <= 3) << t << " " << i;
}

TEST(CausalConv, StatesThatAreNotThereAreSaid) {
  Conv conv(8, 3, Activation::none, false, 4);
  cpu::Interpreter interpreter(conv.program);
  std::byte* buffers[5];
  for (std::byte*& buffer : buffers) buffer = reinterpret_cast<std::byte*>(conv.x.data());
  EXPECT_EQ(interpreter.why_not(buffers, one(4, kNoState, 5)), std::nullopt);
  EXPECT_EQ(interpreter.why_not(buffers, one(4, kNoState, kStates)), "conv: state 6 of 6");
  EXPECT_EQ(interpreter.why_not(buffers, one(4, 9, 0)), "conv: state 9 of 6");
  EXPECT_EQ(interpreter.why_not(buffers, one(4, 0, kNoState)), "conv: state 4294967295 of 6");
  const KeptState behind[] = {{4, 1}};
  EXPECT_EQ(interpreter.why_not(buffers, one(4, 0, 1, behind)), "conv: a state after row 4 of 4");
}

TEST(CausalConv, CostsWhatItReadsAndWrites) {
  Conv conv(10, 3, Activation::none, true, 8);
  const KeptState kept[] = {{2, 1}};
  const uint64_t rows = 2 * 8 * 10 * 4, weights = 40 * 4, state = 2 * 10 * 4;
  EXPECT_EQ(cost(conv.program, one(8, kNoState, 0)).bytes, rows + weights + state);
  EXPECT_EQ(cost(conv.program, one(8, 3, 0, kept)).bytes, rows + weights + 3 * state);
  EXPECT_EQ(cost(conv.program, one(8, 3, 0)).flops, 2u * 8 * 10 * 3);
}

}  // namespace
}  // namespace tyto
