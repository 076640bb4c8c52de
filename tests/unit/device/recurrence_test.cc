// The delta rule and Mamba-2 against plain loops: every instruction set, rows cut anywhere,
// sequences beside each other, states kept inside of a call.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/error.h"
#include "device/cpu/interpreter.h"
#include "program/kernels.h"
#include "support/expect_error.h"

namespace tyto {
namespace {

using Values = std::vector<float>;

constexpr uint32_t kStatesHeld = 5;
constexpr float kEps = 1e-6f;

struct Recurrence {
  Recurrence(Kernel which, const LaunchShape& heads, uint32_t keys_of, uint32_t values_of,
             uint32_t rows)
      : kernel(which), shape(heads), key(keys_of), width(values_of) {
    const uint64_t values = uint64_t{shape.heads} * width, keys = uint64_t{shape.kv_heads} * key;
    const bool is_delta = kernel == Kernel::delta_rule;
    shape.state_rows = shape.heads * key;
    shape.eps = kEps;
    const auto vector = [&](const char* name) {
      return Slot{name, SlotKind::weight, DType::f32, 1, shape.heads};
    };
    const Slot row{"row", SlotKind::input, DType::f32, rows, shape.heads};
    program.slots = {
        {"x", SlotKind::input, DType::f32, rows, values + 2 * keys},
        row,
        is_delta ? row : vector("bias"),
        vector("bias or rates"),
        vector("rates or skip"),
        {"state", SlotKind::state, DType::f32, uint64_t{kStatesHeld} * shape.state_rows, width},
        {"y", SlotKind::output, DType::f32, rows, values}};
    program.launches = {{.kernel = kernel,
                         .name = "recurrence",
                         .args = {{0, true, false},
                                  {1, true, false},
                                  {2, true, false},
                                  {3, true, false},
                                  {4, true, false},
                                  {5, true, true},
                                  {6, false, true}},
                         .shape = shape}};
    cpu::check_launches(program, "test");
    std::mt19937 random(11);
    for (const Slot& slot : program.slots) {
      Values& made = memory.emplace_back(slot.rows * slot.cols);
      for (float& value : made) value = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
    }
    for (float& rate : memory[is_delta ? 4 : 3]) rate -= 1.5f;
    std::ranges::fill(memory[5], std::numeric_limits<float>::quiet_NaN());
  }

  Values run(const Call& call, const cpu::InnerLoops& loops = cpu::best_inner_loops(),
             unsigned threads = 1) {
    ThreadPool pool(threads);
    cpu::Interpreter interpreter(program, {}, loops);
    std::vector<std::byte*> buffers;
    for (Values& values : memory) buffers.push_back(reinterpret_cast<std::byte*>(values.data()));
    const auto problem = interpreter.why_not(buffers, call);
    EXPECT_EQ(problem, std::nullopt) << *problem;
    interpreter.run(buffers, call, pool);
    return {memory[6].begin(),
            memory[6].begin() + static_cast<std::ptrdiff_t>(call.rows * memory_cols(6))};
  }

  size_t memory_cols(size_t slot) const { return program.slots[slot].cols; }

  // What the rows of one sequence give, from its first on.
  Values plain(uint32_t rows) const {
    Values y;
    std::vector<double> state(size_t{shape.state_rows} * width);
    for (uint32_t t = 0; t < rows; ++t)
      for (uint32_t h = 0; h < shape.heads; ++h)
        pass(t, h, state.data() + size_t{h} * key * width, y);
    return y;
  }

  void pass(uint32_t t, uint32_t h, double* state, Values& y) const {
    const bool is_delta = kernel == Kernel::delta_rule;
    const uint32_t group = shape.heads / shape.kv_heads;
    const uint32_t of = shape.tiled_heads ? h % shape.kv_heads : h / group;
    const uint32_t keys = shape.kv_heads * key, values = shape.heads * width;
    const float* row = memory[0].data() + t * memory_cols(0);
    const float* k = row + (is_delta ? keys : values) + of * key;
    const float* q = row + (is_delta ? 0 : values + keys) + of * key;
    const float* v = row + (is_delta ? 2 * keys : 0) + h * width;
    const double bias = memory[is_delta ? 3 : 2][h], rate = memory[is_delta ? 4 : 3][h];
    const double time = std::log1p(std::exp(memory[1][t * shape.heads + h] + bias));
    const double decay = std::exp(rate * time);
    const double strength = is_delta ? 1 / (1 + std::exp(-memory[2][t * shape.heads + h])) : time;
    const auto length = [&](const float* x) {
      double squares = kEps;
      for (uint32_t i = 0; i < key; ++i) squares += double{x[i]} * x[i];
      return is_delta ? std::sqrt(squares) : 1.0;
    };
    const double scale = is_delta ? 1 / std::sqrt(static_cast<double>(key)) : 1;
    for (uint32_t c = 0; c < width; ++c) {
      double found = 0, answer = 0;
      for (uint32_t i = 0; i < key; ++i)
        found += (state[i * width + c] *= decay) * k[i] / length(k);
      const double added = strength * (v[c] - (is_delta ? found : 0));
      for (uint32_t i = 0; i < key; ++i)
        answer += (state[i * width + c] += k[i] / length(k) * added) * q[i] / length(q);
      const double skip = is_delta ? 0 : memory[4][h];
      y.push_back(static_cast<float>(scale * answer + skip * v[c]));
    }
  }

  Values state_of(uint32_t which) const {
    const size_t size = size_t{shape.state_rows} * width;
    const auto begin = memory[5].begin() + static_cast<std::ptrdiff_t>(which * size);
    return {begin, begin + static_cast<std::ptrdiff_t>(size)};
  }

  Kernel kernel;
  LaunchShape shape;
  uint32_t key, width;
  Program program;
  std::vector<Values> memory;
};

Call call_with(uint32_t rows, uint32_t from, uint32_t to, std::span<const KeptState> kept = {}) {
  return {.rows = rows, .only = {.rows = rows, .state_from = from, .state_to = to, .kept = kept}};
}

constexpr Kernel kKernels[] = {Kernel::delta_rule, Kernel::mamba2};

TEST(Recurrence, EveryInstructionSetComputesThePlainOne) {
  for (const Kernel kernel : kKernels)
    for (const bool is_tiled : {false, true})
      for (const auto& [key, width] : {std::pair{16u, 32u}, {12u, 40u}, {128u, 64u}, {5u, 7u}})
        for (const cpu::InnerLoops* loops : cpu::usable_inner_loops()) {
          Recurrence test(kernel, {.heads = 6, .kv_heads = 2, .tiled_heads = is_tiled}, key, width,
                          9);
          const Values y = test.run(call_with(9, kNoState, 2), *loops, 2), expected = test.plain(9);
          for (size_t i = 0; i < y.size(); ++i)
            ASSERT_NEAR(y[i], expected[i], 2e-4 * (1 + std::fabs(expected[i])))
                << loops->name << " " << spec(kernel).name << " " << key << " " << width << " at "
                << i;
        }
}

// In place too, in calls of their own, beside another sequence, and on several threads.
TEST(Recurrence, CutsOfTheRowsChangeNoBit) {
  for (const Kernel kernel : kKernels) {
    const LaunchShape heads{.heads = 4, .kv_heads = 2};
    const Recurrence whole(kernel, heads, 20, 40, 12);
    Recurrence all = whole, beside = whole;
    const KeptState kept[] = {{5, 4}};
    const Values expected = all.run(call_with(12, kNoState, 0, kept), cpu::best_inner_loops(), 3);
    for (const uint32_t cut : {1u, 5u, 11u}) {
      Recurrence parts = whole;
      Values y = parts.run(call_with(cut, kNoState, 1));
      if (cut == 5) {
        EXPECT_EQ(parts.state_of(1), all.state_of(4));
      }
      for (const size_t slot : {0u, 1u, 2u})
        if (parts.program.slots[slot].kind == SlotKind::input)
          parts.memory[slot].erase(parts.memory[slot].begin(),
                                   parts.memory[slot].begin() +
                                       static_cast<std::ptrdiff_t>(cut * parts.memory_cols(slot)));
      const Values more = parts.run(call_with(12 - cut, 1, cut == 5 ? 1 : 3));
      y.insert(y.end(), more.begin(), more.end());
      EXPECT_EQ(y, expected) << cut;
      EXPECT_EQ(parts.state_of(cut == 5 ? 1 : 3), all.state_of(0));
    }
    const Segment segments[] = {{.first_row = 0, .rows = 5, .state_to = 1},
                                {.first_row = 5, .rows = 7, .state_from = 1, .state_to = 2}};
    // The second reads what the first leaves only in another call: here it is another sequence.
    beside.memory[5] = all.memory[5];
    for (size_t i = 0; i < beside.state_of(0).size(); ++i)
      beside.memory[5][beside.state_of(0).size() * 3 + i] = all.state_of(4)[i];
    Segment other[] = {segments[0], segments[1]};
    other[1].state_from = 3;
    const Call both = call_of(other);
    EXPECT_EQ(beside.run(both), expected);
  }
}

TEST(Recurrence, HeadsThatCannotShareKeysAreRefused) {
  Recurrence test(Kernel::delta_rule, {.heads = 4, .kv_heads = 2}, 8, 8, 1);
  test.program.launches[0].shape.kv_heads = 3;
  EXPECT_ERROR(check(test.program), "arguments do not fit kernel delta_rule");
}

}  // namespace
}  // namespace tyto
