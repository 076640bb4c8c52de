#include "program/kernel_spec.h"

#include <gtest/gtest.h>

#include "base/error.h"

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
      {Kernel::matmul, "mm", "b", {{0, true, false}, {1, true, false}, {2, false, true}}, {}}};
  return program;
}

TEST(KernelSpec, TableIsInEnumOrderAndComplete) {
  size_t i = 0;
  for (const KernelSpec& entry : kernel_specs()) {
    EXPECT_EQ(static_cast<size_t>(entry.kernel), i++);
    EXPECT_NE(entry.cost, nullptr) << entry.name;
    EXPECT_FALSE(entry.args.empty()) << entry.name;
  }
  EXPECT_EQ(&spec(Kernel::matmul_q8), &kernel_specs().back());
}

TEST(KernelSpec, MatmulDeclaresItsBytesAndFlops) {
  const Cost bf16 = cost(one_matmul(DType::bf16), {.tokens = 3});
  EXPECT_EQ(bf16.flops, 2u * 3 * 64 * 128);
  EXPECT_EQ(bf16.bytes, 128u * 64 * 2 + 3 * 64 * 4 + 3 * 128 * 4);
  const Cost q8 = cost(one_matmul(DType::q8_0), {.tokens = 3});
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
                       "b",
                       {{0, true, false}, {1, true, false}, {2, true, false}, {3, false, true}},
                       {.heads = 4, .kv_heads = 2, .head_dim = 16, .context = 100}}};
  EXPECT_NO_THROW(check(program));
  const Cost declared = cost(program, {.tokens = 3, .position = 10});
  EXPECT_EQ(declared.flops, 4u * (11 + 12 + 13) * 4 * 16);
  EXPECT_EQ(declared.bytes, 2u * 3 * 64 * 4 + 2u * 13 * 2 * 16 * 2);
}

TEST(KernelSpec, CheckRefusesShapesThatDoNotFit) {
  EXPECT_NO_THROW(check(one_matmul(DType::f32)));
  Program program = one_matmul(DType::f32);
  program.slots[2].cols = 127;
  EXPECT_THROW(check(program), Error);
  program = one_matmul(DType::f32);
  program.launches[0].args.pop_back();
  EXPECT_THROW(check(program), Error);
  program = one_matmul(DType::f32);
  program.launches[0].args[1].slot = 9;
  EXPECT_THROW(check(program), Error);
}

}  // namespace
}  // namespace tyto
