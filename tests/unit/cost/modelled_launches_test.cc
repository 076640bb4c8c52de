#include "cost/cost_model.h"

#include <gtest/gtest.h>

#include "program/kernels.h"

namespace tyto {
namespace {

// Two matrix products and an addition of a layer, over slots of 64 values.
Program small_program() {
  Program program;
  program.slots = {{"x", SlotKind::input, DType::bf16, 4, 64},
                   {"w", SlotKind::weight, DType::bf16, 64, 64},
                   {"y", SlotKind::output, DType::bf16, 4, 64}};
  const auto launch = [](Kernel kernel, std::vector<Arg> args, Role role) {
    return Launch{kernel, "", args, {}, role, 1, Block::o_ffn};
  };
  const std::vector<Arg> product = {{0, true, false}, {1, true, false}, {2, false, true}};
  program.launches = {launch(Kernel::matmul, product, Role::o),
                      launch(Kernel::matmul, product, Role::gate),
                      launch(Kernel::add, {{2, true, true}, {0, true, false}}, Role::ffn_residual)};
  return program;
}

TEST(ModelledLaunches, ADispatchIsSharedOutAndTheCallIsLeft) {
  Trace trace;
  const Program program = small_program();
  const auto names = launch_names(trace, program, groups_of_one(program));
  trace.start(10);
  constexpr uint64_t kTotal = 1'000'000;
  record_modelled_launches(trace, program, names, call_of(1), 0, kTotal);
  const auto events = trace.events();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_GT(events[0].start_ns, 0u);  // the call itself comes first
  for (size_t i = 1; i < 3; ++i) EXPECT_EQ(events[i].start_ns, events[i - 1].end_ns);
  EXPECT_NEAR(static_cast<double>(events[2].end_ns), kTotal, 2);
  EXPECT_NEAR(static_cast<double>(events[0].modelled_ns),
              static_cast<double>(events[1].modelled_ns), 2);  // the same work
  EXPECT_LT(events[2].modelled_ns, events[1].modelled_ns);
}

}  // namespace
}  // namespace tyto
