#include "program/kernels.h"

#include <gtest/gtest.h>

#include <set>

namespace tyto {
namespace {

// Two matrix products and an addition of a layer, over slots of 64 values.
Program small_program() {
  Program program;
  program.name = "a layer";
  program.slots = {{"x", SlotKind::input, DType::bf16, 4, 64},
                   {"w", SlotKind::weight, DType::bf16, 64, 64},
                   {"y", SlotKind::output, DType::bf16, 4, 64}};
  const auto launch = [](Kernel kernel, std::vector<Arg> args, Role role) {
    return Launch{kernel, "for people", args, {}, role, 1, Block::o_ffn};
  };
  const std::vector<Arg> product = {{0, true, false}, {1, true, false}, {2, false, true}};
  program.launches = {launch(Kernel::matmul, product, Role::o),
                      launch(Kernel::matmul, product, Role::gate),
                      launch(Kernel::add, {{2, true, true}, {0, true, false}}, Role::ffn_residual)};
  return program;
}

std::vector<uint16_t> names_of_each(Trace& trace, const Program& program) {
  return launch_names(trace, program, groups_of_one(program));
}

TEST(LayerName, PutsTheLayerBeforeTheName) {
  EXPECT_EQ(layer_name("q", 3), "L03.q");
  EXPECT_EQ(layer_name("q", 120), "L120.q");
  EXPECT_EQ(layer_name("lm_head", kNoLayer), "lm_head");
}

TEST(RoleName, NamesEachPartAndFacetOnceAndIsReadBack) {
  EXPECT_EQ(name(Role::lm_head | Facet::lora_sum), "lm_head_lora");
  std::set<std::string> names;
  for (int part = 0; part <= static_cast<int>(kLastPart); ++part)
    for (int facet = 0; facet <= static_cast<int>(kLastFacet); ++facet) {
      const Role role = Role(static_cast<Role::Part>(part)) | static_cast<Facet>(facet);
      EXPECT_TRUE(names.insert(name(role)).second) << name(role);
      EXPECT_EQ(role_named(name(role)), role) << name(role);
    }
  EXPECT_EQ(role_named("for people"), Role::none);
}

TEST(LaunchNames, SayLayerBlockAndOperator) {
  Trace trace;
  const auto names = names_of_each(trace, small_program());
  ASSERT_EQ(names.size(), 3u);
  EXPECT_EQ(trace.names()[names[0]],
            (EventName{.label = "o", .layer = 1, .block = "o_ffn", .op = Operator::projection}));
  EXPECT_EQ(trace.names()[names[1]].op, Operator::feed_forward);
  EXPECT_EQ(trace.names()[names[2]].op, Operator::other);
  EXPECT_EQ(names_of_each(trace, small_program()), names);
}

TEST(LaunchNames, MeasuredLaunchesFollowEachOther) {
  Trace trace;
  const Program program = small_program();
  const auto names = names_of_each(trace, program);
  trace.start(10);
  const std::vector<uint64_t> ends = {110, 150, 160};
  record_launches(trace, program, groups_of_one(program), names, call_of(2, 5), 0, 100, ends);
  ASSERT_EQ(trace.events().size(), 3u);
  EXPECT_EQ(trace.events()[0].start_ns, 100u);
  EXPECT_EQ(trace.events()[1].start_ns, 110u);
  EXPECT_EQ(trace.events()[2].end_ns, 160u);
  const Cost declared = cost(program, call_of(2, 5));
  uint64_t bytes = 0, flops = 0;
  for (const Event& event : trace.events()) {
    bytes += event.bytes;
    flops += event.flops;
    EXPECT_EQ(event.modelled_ns, 0u);
    EXPECT_EQ(event.launches, 1u);
    EXPECT_EQ(event.position, 5u);
    EXPECT_EQ(event.rows, 2u);
  }
  EXPECT_EQ(bytes, declared.bytes);
  EXPECT_EQ(flops, declared.flops);
}

TEST(LaunchNames, AGroupIsNamedAfterAllOfItsLaunchesAndDeclaresTheirWork) {
  Trace trace;
  const Program program = small_program();
  const std::vector<LaunchGroup> groups = {{0, 2}, {2, 1}};
  const auto names = launch_names(trace, program, groups);
  ASSERT_EQ(names.size(), 2u);
  EXPECT_EQ(
      trace.names()[names[0]],
      (EventName{.label = "o+gate", .layer = 1, .block = "o_ffn", .op = Operator::projection}));
  EXPECT_EQ(trace.names()[names[1]].label, "ffn_residual");
  trace.start(10);
  const std::vector<uint64_t> ends = {150, 160};
  record_launches(trace, program, groups, names, call_of(2, 5), 0, 100, ends);
  ASSERT_EQ(trace.events().size(), 2u);
  EXPECT_EQ(trace.events()[0].launches, 2u);
  EXPECT_EQ(trace.events()[1].launches, 1u);
  EXPECT_EQ(trace.events()[1].start_ns, 150u);
  Cost first_two;
  for (size_t i = 0; i < 2; ++i) first_two += cost(program, program.launches[i], call_of(2, 5));
  EXPECT_EQ(trace.events()[0].bytes, first_two.bytes);
  EXPECT_EQ(trace.events()[0].flops, first_two.flops);
}

TEST(LaunchNames, ALaunchWithoutARoleKeepsItsOwnName) {
  Trace trace;
  Program program = small_program();
  program.launches[0].role = Role::none;
  program.launches[0].block = Block::none;
  const auto names = names_of_each(trace, program);
  EXPECT_EQ(trace.names()[names[0]],
            (EventName{.label = "for people", .layer = 1, .op = Operator::projection}));
}

TEST(DispatchName, IsTheLaunchsTheBlocksOrTheProgramsOwn) {
  Program program = small_program();
  EXPECT_EQ(dispatch_name(program), (EventName{.label = "o_ffn", .layer = 1}));
  program.launches[2].layer = 2;
  EXPECT_EQ(dispatch_name(program), EventName{.label = "a layer"});
  program.launches[2].layer = 1;
  program.launches[2].block = Block::attention;
  EXPECT_EQ(dispatch_name(program), EventName{.label = "a layer"});
  program.launches.resize(1);
  EXPECT_EQ(dispatch_name(program), (EventName{.label = "o", .layer = 1}));
  program.launches[0].layer = kNoLayer;
  EXPECT_EQ(dispatch_name(program), EventName{.label = "o"});
}

}  // namespace
}  // namespace tyto
