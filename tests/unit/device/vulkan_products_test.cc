// Products on the GPU's kernels against plain loops: every type of weight, widths that fit no tile.
#include <gtest/gtest.h>

#include <cmath>

#include "device/vulkan/kernel_shapes.h"
#include "support/random_blocks.h"
#include "tensor/float16.h"
#include "unit/device/software_gpu_fixture.h"

namespace tyto {
namespace {

using namespace testing_support;

struct GpuProduct {
  DType type;
  uint64_t k, n;
  bool has_bias = false;
};

Program program_of(const GpuProduct& product, uint64_t rows) {
  Program program;
  program.name = "product";
  program.slots = {{"x", SlotKind::input, DType::f32, rows, product.k},
                   {"weight", SlotKind::weight, product.type, product.n, product.k},
                   {"y", SlotKind::output, DType::f32, rows, product.n},
                   {"bias", SlotKind::weight, DType::f32, 1, product.n}};
  program.launches = {{Kernel::matmul, "matmul", {{0}, {1}, {2, false, true}}}};
  if (product.has_bias)
    program.launches[0].args.push_back({3});
  else
    program.slots.pop_back();
  return program;
}

// What kernels multiply by: the values of the type, in f16 where it has no kernels of its own.
Values kernel_values(DType type, const Bytes& bytes) {
  Values values = to_values(type, bytes);
  if (vulkan::name(vulkan::weight_form(type)) != info(type).name)
    for (float& value : values) value = f16_to_f32(f32_to_f16(value));
  return values;
}

class VulkanProducts : public SoftwareGpu {
 protected:
  // Sums in f32: every addition may round once, so the error follows the sum of magnitudes. Codes
  // of 4 bits are multiplied before their offset is taken away, which makes that a few times more.
  void check(const GpuProduct& product, std::initializer_list<uint32_t> row_counts) {
    constexpr uint64_t kMostRows = 130;
    const Program program = program_of(product, kMostRows);
    Contents before(program);
    const Values x = random_values(kMostRows * product.k, 3);
    const Values bias = random_values(product.n, 4, 5);
    before.set(program, 0, x);
    if (is_encodable(product.type)) {
      before.set(program, 1, random_values(product.n * product.k, 5));
    } else {
      std::mt19937 random(5);
      before.slots[1] = random_blocks(product.type, product.n * product.k, 1, random);
      before.weights[1] = {product.type, product.n, product.k, before.slots[1]};
    }
    if (product.has_bias) before.set(program, 3, bias);
    const Values weight = kernel_values(product.type, before.slots[1]);
    for (const uint32_t rows : row_counts) {
      SCOPED_TRACE(testing::Message() << info(product.type).name << " " << product.n << " x "
                                      << product.k << ", " << rows << " rows");
      const Call call = call_of(rows);
      const Values y = to_values(DType::f32, run(*device_, program, before, {&call, 1})[2]);
      for (size_t t = 0; t < kMostRows; ++t)
        for (size_t i = 0; i < product.n; ++i) {
          double sum = product.has_bias ? bias[i] : 0, magnitude = std::abs(sum);
          for (size_t j = 0; j < product.k; ++j) {
            const double part = double{x[t * product.k + j]} * double{weight[i * product.k + j]};
            sum += part;
            magnitude += std::abs(part);
          }
          if (t >= rows) sum = magnitude = 0;  // rows that the call does not have stay as they are
          ASSERT_NEAR(y[t * product.n + i], sum, 4e-6 * magnitude) << t << " " << i;
        }
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Memory, VulkanProducts, testing::Values(true), memory_name);

TEST_P(VulkanProducts, OfAnyNumberOfRows) {
  check({DType::f16, 72, 37}, {1, 2, 3, 5, 16, 17, 33, 65, 130});
}

TEST_P(VulkanProducts, OfWidthsThatFitNoTile) {
  for (const uint64_t k : {40u, 100u, 33u}) check({DType::bf16, k, 41}, {1, 17});
  check({DType::f16, 64, 1}, {1, 17});
}

TEST_P(VulkanProducts, OfEveryTypeOfWeights) {
  for (const DType type : {DType::f32, DType::bf16, DType::q8_0, DType::q4_0})
    check({type, 96, 35}, {1, 3, 17});
  for (const DType type : {DType::q4_1, DType::q5_0, DType::q5_1, DType::iq4_nl, DType::mxfp4})
    check({type, 96, 35}, {1, 17});
  for (const DType type : {DType::q4_k, DType::q6_k}) check({type, 512, 35}, {1, 3, 17});
  for (const DType type : {DType::q2_k, DType::q3_k, DType::q5_k, DType::iq4_xs, DType::iq3_s})
    check({type, 512, 35}, {1, 17});
}

TEST_P(VulkanProducts, AddABias) {
  check({DType::q8_0, 64, 35, true}, {1, 17});
}

}  // namespace
}  // namespace tyto
