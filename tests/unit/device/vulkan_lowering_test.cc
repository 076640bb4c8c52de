// What becomes of each kernel on a GPU: dispatches, or a reason why the host does it.
#include <gtest/gtest.h>

#include "device/vulkan/context.h"
#include "device/vulkan/kernel_calls.h"
#include "program/kernels.h"
#include "program/top_k.h"

namespace tyto::vulkan {
namespace {

constexpr uint64_t kRows = 128, kWide = 64;

Slot rows(uint64_t cols = kWide, DType type = DType::f32) {
  return {"rows", SlotKind::inout, type, kRows, cols};
}
Slot weight(uint64_t rows, uint64_t cols = kWide, DType type = DType::f32) {
  return {"weight", SlotKind::weight, type, rows, cols};
}
Slot cache() {
  return {"cache", SlotKind::kv, DType::f16, 2 * 256, 32};
}

constexpr uint64_t kTaps = 4;

// The state of one sequence.
Slot state(uint64_t rows, uint64_t cols) {
  return {"state", SlotKind::state, DType::f32, rows, cols};
}

// The slots of a kernel's required arguments. A new kernel does not compile here until it has some.
std::vector<Slot> slots_of(Kernel kernel) {
  switch (kernel) {
    case Kernel::embed:
      return {rows(1, DType::i32), weight(9), rows()};
    case Kernel::rope_table:
      return {weight(1, kWide / 2), rows()};
    case Kernel::rmsnorm:
    case Kernel::layernorm:
      return {rows(), weight(1), rows()};
    case Kernel::matmul:
      return {rows(), weight(32), rows(32)};
    case Kernel::rope:
      return {rows(), rows(32)};
    case Kernel::kv_append:
      return {rows(), rows(), cache(), cache()};
    case Kernel::attention:
      return {rows(), cache(), cache(), rows()};
    case Kernel::add:
    case Kernel::gather_rows:
    case Kernel::cast:
      return {rows(), rows()};
    case Kernel::swiglu:
      return {rows(), rows(), rows()};
    case Kernel::prompt_attention:
      return {rows(), rows(), rows(), rows()};
    case Kernel::matmul_i8:
      return {rows(kWide, DType::i8), weight(32, kWide, DType::i8), rows(32, DType::i32)};
    case Kernel::matmul_q8:
      return {rows(), weight(32, kWide, DType::i8), weight(1, 32), rows(32)};
    case Kernel::top_k:
      return {rows(512), rows(TopKRow::words_for(64), DType::i32)};
    case Kernel::scale:
    case Kernel::soft_cap:
      return {rows()};
    case Kernel::route:
      return {rows(), weight(8), rows(2, DType::i32), rows(2)};
    case Kernel::expert_matmul:
      return {rows(), weight(8 * 32), rows(2, DType::i32), rows(2 * 32)};
    case Kernel::mix_experts:
      return {rows(2 * kWide), rows(2), rows()};
    case Kernel::split:
      return {rows(2 * kWide), rows(), rows()};
    case Kernel::add_gated:
      return {rows(), rows(), rows(1)};
    case Kernel::delta_rule:
      return {rows(3 * kWide), rows(2),          rows(2), weight(1, 2),
              weight(1, 2),    state(kWide, 32), rows()};
    case Kernel::mamba2:
      return {rows(3 * kWide), rows(2),          weight(1, 2), weight(1, 2),
              weight(1, 2),    state(kWide, 32), rows()};
    case Kernel::causal_conv:
      return {rows(), weight(1, kTaps * kWide), state(kTaps - 1, kWide), rows()};
  }
  return {};
}

Program program_of(Kernel kernel) {
  Program program{
      .name = std::string(spec(kernel).name), .slots = slots_of(kernel), .launches = {}};
  Launch launch{.kernel = kernel, .name = program.name, .args = {}};
  launch.shape = {
      .heads = 2, .kv_heads = 2, .head_dim = 32, .context = 256, .page = 256, .experts = 8};
  launch.shape.state_rows = kernel == Kernel::causal_conv ? kTaps - 1 : kWide;
  for (uint16_t i = 0; i < program.slots.size(); ++i) {
    const ArgSpec arg = spec(kernel).args[i];
    launch.args.push_back({i, arg.reads, arg.writes});
  }
  program.launches.push_back(launch);
  return program;
}

TEST(VulkanLowering, EveryKernelIsLoweredOrRefusedWithAReason) {
  const GpuFacts gpu{.name = "a GPU",
                     .driver = "its driver",
                     .subgroup_size = 32,
                     .compute_units = 16,
                     .shared_bytes = 32 << 10,
                     .most_invocations = 1024};
  size_t lowered = 0;
  for (size_t i = 0; i <= static_cast<size_t>(kLastKernel); ++i) {
    const Program program = program_of(static_cast<Kernel>(i));
    SCOPED_TRACE(program.name);
    ASSERT_NO_THROW(check(program));
    if (const auto reason = why_not(program, program.launches[0])) {
      EXPECT_FALSE(reason->empty());
      continue;
    }
    ++lowered;
    for (const uint32_t rows : {1u, 16u, 128u}) {
      const Lowered result = lower(program, {.rows = rows, .has_single_rows = rows == 1}, gpu);
      ASSERT_FALSE(result.dispatches.empty());
      for (const Dispatch& dispatch : result.dispatches) {
        EXPECT_TRUE(Pipelines::has(dispatch.kernel.shader)) << dispatch.kernel.shader;
        EXPECT_FALSE(dispatch.writes.empty());
      }
    }
  }
  EXPECT_EQ(lowered, 18u);
}

}  // namespace
}  // namespace tyto::vulkan
