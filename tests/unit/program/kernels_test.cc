#include "program/kernels.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "support/expect_error.h"

namespace tyto {
namespace {

// x[4, 64] * w[128, 64]^T -> y[4, 128]
Program one_matmul(DType weight_type) {
  Program program;
  program.name = "p";
  program.slots = {{"x", SlotKind::input, DType::f32, 4, 64},
                   {"w", SlotKind::weight, weight_type, 128, 64},
                   {"y", SlotKind::output, DType::f32, 4, 128}};
  program.launches = {
      {Kernel::matmul, "mm", {{0, true, false}, {1, true, false}, {2, false, true}}, {}}};
  return program;
}

TEST(KernelSpec, TableIsInEnumOrderAndComplete) {
  for (size_t i = 0; i <= static_cast<size_t>(kLastKernel); ++i) {
    const KernelSpec& entry = spec(static_cast<Kernel>(i));
    EXPECT_EQ(static_cast<size_t>(entry.kernel), i);
    EXPECT_NE(entry.cost, nullptr) << entry.name;
    EXPECT_NE(entry.fits, nullptr) << entry.name;
    EXPECT_GT(entry.required, 0u) << entry.name;
    EXPECT_LE(entry.required, entry.most) << entry.name;
    ASSERT_LE(entry.most, kMostArgs) << entry.name;
    bool writes = false;
    for (size_t arg = 0; arg < entry.args.size(); ++arg) {
      EXPECT_EQ(entry.args[arg].name.empty(), arg >= entry.most) << entry.name << " " << arg;
      writes |= entry.args[arg].writes;
    }
    EXPECT_TRUE(writes) << entry.name;
  }
}

TEST(KernelSpec, MatmulDeclaresItsBytesAndFlops) {
  const Cost bf16 = cost(one_matmul(DType::bf16), call_of(3));
  EXPECT_EQ(bf16.flops, 2u * 3 * 64 * 128);
  EXPECT_EQ(bf16.bytes, 128u * 64 * 2 + 3 * 64 * 4 + 3 * 128 * 4);
  const Cost q8 = cost(one_matmul(DType::q8_0), call_of(3));
  EXPECT_EQ(q8.bytes, 128u * 2 * 34 + 3 * 64 * 4 + 3 * 128 * 4);
}

TEST(KernelSpec, AttentionCountsTheCausalTriangle) {
  Program program;
  program.slots = {{"q", SlotKind::scratch, DType::f32, 8, 64},
                   {"k", SlotKind::kv, DType::f16, 2 * 100, 16},
                   {"v", SlotKind::kv, DType::f16, 2 * 100, 16},
                   {"y", SlotKind::scratch, DType::f32, 8, 64}};
  program.launches = {{Kernel::attention,
                       "a",
                       {{0, true, false}, {1, true, false}, {2, true, false}, {3, false, true}},
                       {.heads = 4, .kv_heads = 2, .head_dim = 16, .context = 100}}};
  EXPECT_NO_THROW(check(program));
  const Cost declared = cost(program, call_of(3, 10));
  EXPECT_EQ(declared.flops, 4u * (11 + 12 + 13) * 4 * 16);
  EXPECT_EQ(declared.bytes, 2u * 3 * 64 * 4 + 2u * 13 * 2 * 16 * 2);
}

TEST(KernelSpec, AttentionInAWindowCountsWhatItSees) {
  Program program;
  program.slots = {{"q", SlotKind::scratch, DType::f32, 8, 64},
                   {"k", SlotKind::kv, DType::f16, 2 * 100, 16},
                   {"v", SlotKind::kv, DType::f16, 2 * 100, 16},
                   {"y", SlotKind::scratch, DType::f32, 8, 64},
                   {"sinks", SlotKind::weight, DType::f32, 1, 4}};
  program.launches = {{Kernel::attention,
                       "a",
                       {{0, true, false}, {1, true, false}, {2, true, false}, {3, false, true}},
                       {.heads = 4, .kv_heads = 2, .head_dim = 16, .context = 100, .window = 12}}};
  EXPECT_EQ(beyond_causal_attention(program, program.launches[0]), "window");
  const Cost declared = cost(program, call_of(3, 10));
  EXPECT_EQ(declared.flops, 4u * (11 + 12 + 12) * 4 * 16);
  EXPECT_EQ(declared.bytes, 2u * 3 * 64 * 4 + 2u * 13 * 2 * 16 * 2);
  EXPECT_EQ(cost(program, call_of(3, 50)).bytes, 2u * 3 * 64 * 4 + 2u * 14 * 2 * 16 * 2);
  EXPECT_EQ(cost(program, call_of(3, 50)).flops, 4u * (3 * 12) * 4 * 16);
  EXPECT_EQ(cost(program, call_of(3, 2)).flops, 4u * (3 + 4 + 5) * 4 * 16);

  program.launches[0].shape.window = 0;
  EXPECT_EQ(beyond_causal_attention(program, program.launches[0]), "");
  program.launches[0].args.push_back({4, true, false});
  EXPECT_NO_THROW(check(program));
  EXPECT_EQ(beyond_causal_attention(program, program.launches[0]), "sinks");
  program.slots[4].cols = 2;
  EXPECT_ERROR(check(program), "a: arguments do not fit kernel attention");
}

// Four heads on two, in a cache in pages of 16 positions or in one piece of 100.
Program one_attention(uint32_t page) {
  Program program;
  const uint64_t positions = page == 0 ? 100 : 8 * uint64_t{page};
  program.slots = {{"q", SlotKind::scratch, DType::f32, 8, 64},
                   {"k", SlotKind::kv, DType::f16, 2 * positions, 16},
                   {"v", SlotKind::kv, DType::f16, 2 * positions, 16},
                   {"y", SlotKind::scratch, DType::f32, 8, 64}};
  program.launches = {{Kernel::attention,
                       "a",
                       {{0, true, false}, {1, true, false}, {2, true, false}, {3, false, true}},
                       {.heads = 4, .kv_heads = 2, .head_dim = 16, .context = 100, .page = page}}};
  return program;
}

TEST(KernelSpec, AttentionOfSeveralSequencesCostsWhatEachDoesAlone) {
  for (const uint32_t page : {0u, 16u}) {
    const Program program = one_attention(page);
    EXPECT_NO_THROW(check(program)) << page;
    const std::vector<Segment> segments = {{0, 3, 10}, {3, 1, 77}, {4, 2, 0}};
    const Call together = call_of(segments);
    EXPECT_EQ(together.rows, 6u);
    Cost sum;
    for (const Segment& segment : segments)
      sum += cost(program, call_of(segment.rows, segment.position));
    EXPECT_EQ(cost(program, together).bytes, sum.bytes) << page;
    EXPECT_EQ(cost(program, together).flops, sum.flops) << page;
  }
}

TEST(KernelSpec, ACacheThatIsNoWholeNumberOfPagesIsRefused) {
  Program program = one_attention(16);
  program.slots[1].rows -= 1;
  EXPECT_ERROR(check(program), "a: arguments do not fit kernel attention");
  program = one_attention(16);
  program.launches[0].shape.kv_group = 2;  // heads lie apart in pages
  EXPECT_ERROR(check(program), "a: arguments do not fit kernel attention");
}

TEST(KernelSpec, AKernelThatWritesElsewhereOnlyReadsItsFirstArgument) {
  Launch add{Kernel::add, "add", {{0, true, true}, {1, true, false}}};
  EXPECT_TRUE(arg_spec(add, 0).writes);
  add.args = {{0, true, false}, {1, true, false}, {2, false, true}};
  EXPECT_FALSE(arg_spec(add, 0).writes);
  EXPECT_TRUE(arg_spec(add, 2).writes);
  const Program biased = one_matmul(DType::f32);
  EXPECT_TRUE(arg_spec(biased.launches[0], 2).writes);  // a bias changes nothing
  EXPECT_FALSE(arg_spec(biased.launches[0], 3).writes);
}

TEST(KernelSpec, CachesAreFoundByTheirKind) {
  EXPECT_EQ(cache_arg(one_attention(0).launches[0]), 1u);
  EXPECT_EQ(cache_arg(Launch{Kernel::kv_append, "", {}}), 2u);
  EXPECT_EQ(cache_arg(one_matmul(DType::f32).launches[0]), kNoArg);
  EXPECT_EQ(cache_arg(Launch{Kernel::prompt_attention, "", {}}), kNoArg);
}

TEST(OperatorOf, ProductsAndCastsCountWhereTheirRoleDoes) {
  for (const Kernel kernel : {Kernel::matmul, Kernel::matmul_q8, Kernel::matmul_i8, Kernel::cast}) {
    const auto of = [&](Role role) {
      return operator_of({.kernel = kernel, .name = "lm_head", .args = {}, .role = role});
    };
    for (const Role role : {Role::q, Role::k, Role::v, Role::o})
      EXPECT_EQ(of(role), Operator::projection) << name(role) << " " << spec(kernel).name;
    for (const Role role : {Role::gate, Role::up, Role::down})
      EXPECT_EQ(of(role), Operator::feed_forward) << name(role) << " " << spec(kernel).name;
    EXPECT_EQ(of(Role::lm_head), Operator::head) << spec(kernel).name;
  }
  EXPECT_EQ(operator_of({.kernel = Kernel::cast, .name = "q", .args = {}}), Operator::other);
  EXPECT_EQ(operator_of({.kernel = Kernel::matmul, .name = "gate", .args = {}}),
            Operator::projection);
}

TEST(OperatorOf, EveryOtherKernelHasItsOwnWhateverItsRole) {
  const std::pair<Kernel, Operator> expected[] = {{Kernel::embed, Operator::other},
                                                  {Kernel::rope_table, Operator::norm_rope},
                                                  {Kernel::rmsnorm, Operator::norm_rope},
                                                  {Kernel::rope, Operator::norm_rope},
                                                  {Kernel::kv_append, Operator::attention},
                                                  {Kernel::attention, Operator::attention},
                                                  {Kernel::prompt_attention, Operator::attention},
                                                  {Kernel::add, Operator::other},
                                                  {Kernel::swiglu, Operator::feed_forward},
                                                  {Kernel::gather_rows, Operator::other},
                                                  {Kernel::top_k, Operator::head},
                                                  {Kernel::scale, Operator::other},
                                                  {Kernel::layernorm, Operator::norm_rope},
                                                  {Kernel::route, Operator::feed_forward},
                                                  {Kernel::expert_matmul, Operator::feed_forward},
                                                  {Kernel::mix_experts, Operator::feed_forward}};
  for (const auto& [kernel, op] : expected)
    for (const Role role : {Role::none, Role::lm_head, Role::gate})
      EXPECT_EQ(operator_of({.kernel = kernel, .name = "", .args = {}, .role = role}), op)
          << spec(kernel).name;
}

TEST(KernelSpec, IdsAreIntegers) {
  Program program;
  program.slots = {{"ids", SlotKind::input, DType::i32, 4, 1},
                   {"table", SlotKind::weight, DType::bf16, 10, 8},
                   {"x", SlotKind::output, DType::f32, 4, 8}};
  program.launches = {
      {Kernel::embed, "embed", {{0, true, false}, {1, true, false}, {2, false, true}}}};
  EXPECT_NO_THROW(check(program));
  program.slots[0].dtype = DType::f32;
  EXPECT_ERROR(check(program), "do not fit kernel embed");
}

TEST(KernelSpec, TopKHasRoomForItsPairsAndTwoWordsMoreAndReadsTheLogitsOnce) {
  Program program;
  program.slots = {{"logits", SlotKind::scratch, DType::f32, 4, 100},
                   {"candidates", SlotKind::output, DType::i32, 4, 2 * 64 + 2}};
  program.launches = {{Kernel::top_k, "top_k", {{0, true, false}, {1, false, true}}}};
  EXPECT_NO_THROW(check(program));
  const Cost declared = cost(program, call_of(3));
  EXPECT_EQ(declared.bytes, 3u * (100 * 4 + 130 * 4));
  EXPECT_EQ(declared.flops, 3u * 100 * 3);
  for (const uint64_t words : {0u, 2u, 129u, 2u * 101 + 2}) {  // none, no whole pairs, too many
    program.slots[1].cols = words;
    EXPECT_ERROR(check(program), "do not fit kernel top_k") << words;
  }
  program.slots[1].cols = 2 * 100 + 2;
  EXPECT_NO_THROW(check(program));
  program.slots[1].dtype = DType::f32;
  EXPECT_ERROR(check(program), "do not fit kernel top_k");
}

TEST(KernelSpec, ExpertsAreDeclaredAsOftenAsRowsCanTakeThem) {
  Program program;
  program.slots = {{"x", SlotKind::scratch, DType::f32, 8, 32},
                   {"weight", SlotKind::weight, DType::f32, 10 * 16, 32},
                   {"ids", SlotKind::scratch, DType::i32, 8, 4},
                   {"y", SlotKind::scratch, DType::f32, 8, 4 * 16}};
  program.launches = {{Kernel::expert_matmul,
                       "gate",
                       {{0, true, false}, {1, true, false}, {2, true, false}, {3, false, true}}}};
  EXPECT_ERROR(check(program), "do not fit kernel expert_matmul");  // there are no experts
  program.launches[0].shape.experts = 10;
  EXPECT_NO_THROW(check(program));
  const uint64_t row = 32 * 4 + 4 * 4 + 4 * 16 * 4, expert = 16 * 32 * 4;
  EXPECT_EQ(cost(program, call_of(1)).bytes, row + 4 * expert);
  EXPECT_EQ(cost(program, call_of(2)).bytes, 2 * row + 8 * expert);
  EXPECT_EQ(cost(program, call_of(8)).bytes, 8 * row + 10 * expert);
  EXPECT_EQ(cost(program, call_of(2)).flops, 2u * 2 * 4 * 16 * 32);
  program.slots[0].cols = 4 * 32;  // a row for each choice
  EXPECT_NO_THROW(check(program));
  program.slots[0].cols = 2 * 32;
  EXPECT_ERROR(check(program), "do not fit kernel expert_matmul");
}

TEST(KernelSpec, CheckRefusesShapesThatDoNotFit) {
  EXPECT_NO_THROW(check(one_matmul(DType::f32)));
  Program program = one_matmul(DType::f32);
  program.slots[2].cols = 127;
  EXPECT_ERROR(check(program), "mm: arguments do not fit kernel matmul");
  program = one_matmul(DType::f32);
  program.launches[0].args.pop_back();
  EXPECT_ERROR(check(program), "mm: arguments do not fit kernel matmul");
  program = one_matmul(DType::f32);
  program.launches[0].args[1].slot = 9;
  EXPECT_ERROR(check(program), "mm: arguments do not fit kernel matmul");
}

}  // namespace
}  // namespace tyto
