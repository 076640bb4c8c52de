// Which threads do what in a product with a few rows: limits that the kernels count on.
#include "device/vulkan/kernel_shapes.h"

#include <gtest/gtest.h>

#include <bit>

namespace tyto::vulkan {
namespace {

const GemvGpu kGpus[] = {
    {.subgroup_size = 8, .shared_bytes = 32 << 10, .compute_units = 0, .multiplies_bytes = true},
    {.subgroup_size = 32, .shared_bytes = 48 << 10, .compute_units = 132, .multiplies_bytes = true},
    {.subgroup_size = 32, .shared_bytes = 48 << 10, .compute_units = 132},
    {.subgroup_size = 64, .shared_bytes = 64 << 10, .compute_units = 16, .multiplies_bytes = true},
};

constexpr WeightForm kForms[] = {
    WeightForm::f32,   WeightForm::f16,  WeightForm::bf16, WeightForm::q8_0,   WeightForm::q4_0,
    WeightForm::q4_k,  WeightForm::q4_1, WeightForm::q5_0, WeightForm::q5_1,   WeightForm::q2_k,
    WeightForm::q3_k,  WeightForm::q5_k, WeightForm::q6_k, WeightForm::iq4_nl, WeightForm::iq4_xs,
    WeightForm::mxfp4, WeightForm::i8};

TEST(GemvShape, KeepsTheKernelsLimits) {
  for (const GemvGpu& gpu : kGpus)
    for (const WeightForm form : kForms)
      for (const uint32_t rows : {1u, 2u, 4u, 8u, 16u})
        for (const uint64_t k : {32u, 256u, 2048u, 8192u, 14336u, 28672u})
          for (const uint64_t outputs : {1u, 512u, 3072u, 8192u, 128256u})
            for (const bool is_pairs : {false, true}) {
              const GemvShape shape = gemv_shape({form, rows, k, outputs, is_pairs}, gpu);
              EXPECT_TRUE(std::has_single_bit(shape.threads));
              EXPECT_GE(shape.threads, gpu.subgroup_size);
              EXPECT_LE(shape.threads, 256u);
              EXPECT_TRUE(std::has_single_bit(shape.outputs));
              EXPECT_LE(shape.outputs * (is_pairs ? 2 : 1) * rows, 64u);
              EXPECT_GE(shape.most_workgroups, 1u);
              // What subgroups add up, and squares; x as bytes, its scales and sums.
              const uint64_t sums = shape.outputs * (is_pairs ? 2 : 1) * rows;
              const uint64_t turns = shape.in_integers ? 2 : 1;
              const uint64_t x = shape.in_integers ? rows * (2 * k + k / 8 + k / 4) : 0;
              EXPECT_LE(x + 4 * (turns * sums + rows) * (shape.threads / 4), gpu.shared_bytes)
                  << name(form) << " rows " << rows << " k " << k;
              EXPECT_TRUE(gpu.multiplies_bytes || !shape.in_integers);
              EXPECT_TRUE(shape.in_integers || shape.most_workgroups == UINT32_MAX);
            }
}

TEST(GemvShape, MultipliesBytesOnlyWhereThatPays) {
  constexpr uint64_t kHead = 128256, kSmall = 2048;
  const GemvGpu gpu = kGpus[1];
  for (const WeightForm form : kForms) {
    const bool is_unpacked = form != WeightForm::q8_0 && form != WeightForm::q4_0 &&
                             form != WeightForm::q4_k && form != WeightForm::q6_k;
    EXPECT_EQ(gemv_shape({form, 1, 2048, kHead, false}, gpu).in_integers, !is_unpacked);
    EXPECT_EQ(gemv_shape({form, 1, 2048, 8192, true}, gpu).in_integers, !is_unpacked);
    EXPECT_FALSE(gemv_shape({form, 1, 2048, kSmall, false}, gpu).in_integers);
    EXPECT_FALSE(gemv_shape({form, 2, 2048, kHead, false}, gpu).in_integers);
    EXPECT_FALSE(gemv_shape({form, 1, 2048, kHead, false}, kGpus[2]).in_integers);
    EXPECT_FALSE(gemv_shape({form, 1, 1 << 16, kHead, false}, gpu).in_integers);
  }
}

TEST(GemvShape, LongRowsHaveMoreThreads) {
  const GemvGpu gpu = kGpus[1];
  EXPECT_LT(gemv_shape({WeightForm::bf16, 1, 2048, 2048, false}, gpu).threads,
            gemv_shape({WeightForm::bf16, 1, 8192, 2048, false}, gpu).threads);
}

TEST(GemvShape, SmallMatricesAreSpreadOverAllComputeUnits) {
  const GemvGpu gpu = kGpus[1];
  EXPECT_LT(gemv_shape({WeightForm::bf16, 1, 2048, 2048, false}, gpu).outputs,
            gemv_shape({WeightForm::bf16, 1, 2048, 128256, false}, gpu).outputs);
}

// The fastest on an H200 of those measured, for products of a model with 1.2 billion weights.
TEST(GemvShape, QuantisedFormsHaveTheShapesThatWereFast) {
  const GemvGpu gpu = kGpus[2];
  const auto expect = [&](const GemvProblem& problem, uint32_t threads, uint32_t outputs) {
    const GemvShape shape = gemv_shape(problem, gpu);
    EXPECT_EQ(shape.threads, threads) << name(problem.form) << " " << problem.outputs;
    EXPECT_EQ(shape.outputs, outputs) << name(problem.form) << " " << problem.outputs;
  };
  expect({WeightForm::q4_0, 1, 2048, 2048, false}, 128, 4);
  expect({WeightForm::q4_0, 1, 8192, 2048, false}, 256, 4);
  expect({WeightForm::q8_0, 1, 2048, 2048, false}, 128, 2);
  expect({WeightForm::q8_0, 1, 8192, 2048, false}, 256, 2);
  expect({WeightForm::q6_k, 1, 2048, 2048, false}, 64, 2);
  expect({WeightForm::i8, 1, 2048, 8192, true}, 64, 4);
  expect({WeightForm::i8, 1, 2048, 128256, false}, 64, 8);
}

TEST(GemvShape, WorkgroupsThatWriteXDownAreNoMoreThanRunAtOnce) {
  const GemvProblem head{WeightForm::q4_0, 1, 2048, 128256, false};
  const GemvShape shape = gemv_shape(head, kGpus[1]);
  ASSERT_TRUE(shape.in_integers);
  EXPECT_LT(shape.most_workgroups, head.outputs / shape.outputs);
  EXPECT_GE(shape.most_workgroups, kGpus[1].compute_units);
  EXPECT_GE(gemv_shape(head, kGpus[0]).most_workgroups, 1u);  // compute units unknown
}

}  // namespace
}  // namespace tyto::vulkan
