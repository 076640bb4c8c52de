#include "program/launch_names.h"

#include <gtest/gtest.h>

#include "program/kernel_spec.h"

namespace tyto {
namespace {

// Two matrix products and an addition of a layer, over slots of 64 values.
Program small_program() {
  Program program;
  program.name = "L01.o_ffn";
  program.slots = {{"x", SlotKind::input, DType::bf16, 4, 64},
                   {"w", SlotKind::weight, DType::bf16, 64, 64},
                   {"y", SlotKind::output, DType::bf16, 4, 64}};
  const auto matmul = [](const char* step) {
    return Launch{Kernel::matmul,
                  step,
                  "L01.o_ffn",
                  {{0, true, false}, {1, true, false}, {2, false, true}},
                  {}};
  };
  program.launches = {
      matmul("L01.o"),
      matmul("L01.gate"),
      {Kernel::add, "L01.ffn_residual", "L01.o_ffn", {{2, true, true}, {0, true, false}}, {}}};
  return program;
}

TEST(LaunchNames, SayLayerBlockAndOperator) {
  Trace trace;
  const auto names = launch_names(trace, small_program());
  ASSERT_EQ(names.size(), 3u);
  EXPECT_EQ(trace.names()[names[0]],
            (EventName{.label = "o", .layer = 1, .block = "o_ffn", .op = Operator::projection}));
  EXPECT_EQ(trace.names()[names[1]].op, Operator::feed_forward);
  EXPECT_EQ(trace.names()[names[2]].op, Operator::other);
  EXPECT_EQ(launch_names(trace, small_program()), names);
}

TEST(LaunchNames, MeasuredLaunchesFollowEachOther) {
  Trace trace;
  const Program program = small_program();
  const auto names = launch_names(trace, program);
  trace.start(10);
  const std::vector<uint64_t> ends = {110, 150, 160};
  record_launches(trace, program, names, {.tokens = 2, .position = 5}, 0, 100, ends);
  ASSERT_EQ(trace.events().size(), 3u);
  EXPECT_EQ(trace.events()[0].start_ns, 100u);
  EXPECT_EQ(trace.events()[1].start_ns, 110u);
  EXPECT_EQ(trace.events()[2].end_ns, 160u);
  const Cost declared = cost(program, {.tokens = 2, .position = 5});
  uint64_t bytes = 0, flops = 0;
  for (const Event& event : trace.events()) {
    bytes += event.bytes;
    flops += event.flops;
    EXPECT_EQ(event.modelled_ns, 0u);
  }
  EXPECT_EQ(bytes, declared.bytes);
  EXPECT_EQ(flops, declared.flops);
}

}  // namespace
}  // namespace tyto
