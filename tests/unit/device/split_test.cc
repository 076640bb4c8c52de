// Stretches of rows cut in two, and rows added behind a gate.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/error.h"
#include "device/cpu/interpreter.h"
#include "program/kernels.h"
#include "support/expect_error.h"

namespace tyto {
namespace {

using Values = std::vector<float>;

void run(const Program& program, std::vector<Values>& memory, uint32_t rows) {
  cpu::check_launches(program, "test");
  ThreadPool pool(2);
  cpu::Interpreter interpreter(program, {}, cpu::best_inner_loops());
  std::vector<std::byte*> buffers;
  for (Values& values : memory) buffers.push_back(reinterpret_cast<std::byte*>(values.data()));
  interpreter.run(buffers, call_of(rows), pool);
}

Slot rows_of(const char* name, uint64_t cols) {
  return {name, SlotKind::inout, DType::f32, 2, cols};
}

TEST(Split, GivesTheFirstAndTheSecondPartOfEachStretch) {
  Program program;
  program.slots = {rows_of("x", 6), rows_of("y", 2), rows_of("z", 4)};
  program.launches = {{Kernel::split,
                       "split",
                       {{0, true, false}, {1, false, true}, {2, false, true}},
                       {.heads = 2}}};
  std::vector<Values> memory = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, Values(4), Values(8)};
  run(program, memory, 2);
  EXPECT_EQ(memory[1], (Values{1, 4, 7, 10}));
  EXPECT_EQ(memory[2], (Values{2, 3, 5, 6, 8, 9, 11, 12}));
  program.launches[0].shape.heads = 4;
  EXPECT_ERROR(check(program), "arguments do not fit kernel split");
}

TEST(AddGated, AddsARowTimesTheSigmoidOfItsGate) {
  Program program;
  program.slots = {rows_of("x", 3), rows_of("y", 3), rows_of("gate", 1)};
  program.launches = {
      {Kernel::add_gated, "add_gated", {{0, true, true}, {1, true, false}, {2, true, false}}}};
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<Values> memory = {{1, 2, 3, 4, 5, 6}, {1, -1, 2, 1, 1, 1}, {0.5f, nan}};
  run(program, memory, 2);
  const double share = 1 / (1 + std::exp(-0.5));
  EXPECT_NEAR(memory[0][1], 2 - share, 1e-6);
  EXPECT_NEAR(memory[0][2], 3 + 2 * share, 1e-6);
  EXPECT_TRUE(std::isnan(memory[0][3])) << "a gate that is no number shows in its row alone";
}

}  // namespace
}  // namespace tyto
