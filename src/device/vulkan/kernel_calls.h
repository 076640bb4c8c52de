// Dispatches of the kernels, one function each: the only place that knows their specialization
// constants, the order of their arguments and their grids, as the head of each shader says them.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "device/vulkan/context.h"
#include "device/vulkan/gpu.h"
#include "device/vulkan/kernel_shapes.h"
#include "device/vulkan/lowering.h"
#include "program/kernels.h"
#include "program/program.h"

namespace tyto::vulkan {

// A Program as a GPU runs it: dispatches of kernels with their arguments, ready to be recorded.

// What an address among a kernel's arguments is of: a slot of the program; from its number of slots
// on, a temporary of the lowering; or one of these.
using Operand = uint32_t;
constexpr Operand kNothing = UINT32_MAX;       // address 0
constexpr Operand kCallData = UINT32_MAX - 1;  // device/vulkan/vulkan_device.h

struct Dispatch {
  PipelineKey kernel;
  std::vector<Operand> operands = {};  // addresses, in the order of the kernel's push constants
  std::vector<uint32_t> values = {};   // after them
  std::array<uint32_t, 3> groups = {1, 1, 1};
  std::vector<Operand> writes = {};  // those operands that are written; the others are read
  LaunchGroup launches = {};         // the program's that it computes or takes part in
};

// What a recording is made for: the kernels and their grids depend on no more.
struct CallForm {
  uint32_t rows = 1;             // as many as the kernels can take; the call may have fewer
  bool has_single_rows = false;  // every segment is one row
  uint32_t tiles = 1;            // for prompt attention
  auto operator<=>(const CallForm&) const = default;
};

struct Lowered {
  std::vector<Dispatch> dispatches;
  std::vector<uint64_t> temporaries;  // bytes of each, zeroed when it is allocated
};

// The kernels of few rows read each weight once for all of them; those of many rows are products of
// matrices.
constexpr uint32_t kFewRows = 16;

// How many rows kernels for a call of `rows` rows take.
uint32_t row_bucket(uint32_t rows);

struct GpuFacts;

// Nothing when a launch can run on a GPU, else the reason.
std::optional<std::string> why_not(const Program& program, const Launch& launch);

Lowered lower(const Program& program, const CallForm& form, const GpuFacts& gpu);

// How numbers lie in memory, as shaders/buffers.glsl counts them.
enum class Numbers : uint32_t { f32, bf16, f16 };

// A program, what its calls are like, and the GPU.
struct Site {
  const Program& program;
  const CallForm& form;
  const GpuFacts& gpu;

  const Slot& slot(const Launch& launch, size_t arg) const {
    return program.slots[launch.args[arg].slot];
  }
};

inline uint32_t u32(uint64_t value) {
  return static_cast<uint32_t>(value);
}
// Workgroups for `work` items, `each` items per workgroup.
inline uint32_t workgroups(uint64_t work, uint64_t each) {
  return u32((work + each - 1) / each);
}

Dispatch embed_call(const Site& site, const Launch& launch);
Dispatch rope_table_call(const Site& site, const Launch& launch);
// RMS or layer norm. With `add`, which adds the result and no other wants it, onto that sum.
Dispatch norm_call(const Site& site, const Launch& launch, Numbers out, const Launch* add);
Dispatch add_call(const Site& site, const Launch& launch);
Dispatch swiglu_call(const Site& site, const Launch& launch);
Dispatch gather_rows_call(const Site& site, const Launch& launch);
Dispatch cast_call(const Site& site, const Launch& launch);
Dispatch factor_call(const Site& site, const Launch& launch);  // scale, soft_cap
Dispatch rope_call(const Site& site, const Launch& launch);
Dispatch kv_append_call(const Site& site, const Launch& launch);

// Everything between the projections and what attention mixes.
struct AttentionParts {
  const Launch* q_norm = nullptr;  // none: the model has no such norms
  const Launch* k_norm = nullptr;
  const Launch* q_rope = nullptr;  // none: the layer has no positions
  const Launch* k_rope = nullptr;
  const Launch* q_scale = nullptr;
  const Launch* append = nullptr;
  const Launch* attention = nullptr;

  uint16_t queries() const { return (q_scale != nullptr ? q_scale : attention)->args[0].slot; }
  float q_factor() const { return q_scale != nullptr ? q_scale->shape.factor : 1; }
  bool turns_pairs() const { return q_rope != nullptr && q_rope->shape.rope_pairs; }
};
// Norms, ropes and the appending.
Dispatch rope_append_call(const Site& site, const AttentionParts& parts);
// For few rows: all parts in one if it has them, else attention alone. Needs `partial` and
// `counters`.
struct AttentionSplit {
  uint32_t splits = 1;  // workgroups that share a row's positions
  uint64_t partial_bytes = 0;
  uint64_t counter_bytes = 0;
};
AttentionSplit attention_split(const Site& site, const Launch& attention);
Dispatch few_rows_attention_call(const Site& site, const AttentionParts& parts, Operand partial,
                                 Operand counters);
Dispatch many_rows_attention_call(const Site& site, const AttentionParts& parts, Numbers out);

// Kernels hold all of a row's scores, and the counts of a call's choices, in shared memory.
constexpr uint32_t kMostExperts = 1024;

// A layer's experts: what chooses them, and what they compute.
struct ExpertParts {
  const Launch* norm = nullptr;  // none: what reads x finds it normed
  const Launch* route = nullptr;
  const Launch* gate = nullptr;
  const Launch* up = nullptr;
  const Launch* gating = nullptr;
  const Launch* down = nullptr;
  const Launch* mix = nullptr;
  const Launch* add = nullptr;  // onto the residual stream; none: the sum stands alone
};

// The router's products become `scores`.
Dispatch route_scores_call(const Site& site, const Launch& route, const Launch* norm,
                           Operand scores);
Dispatch choose_experts_call(const Site& site, const Launch& route, Operand scores);
uint64_t route_scores_bytes(const Site& site, const Launch& route);

// One product with the experts of each row, or gate and up with what they go through.
struct ExpertProduct {
  const Launch* matmul = nullptr;
  const Launch* up = nullptr;
  const Launch* gating = nullptr;
  const Launch* norm = nullptr;
};
// Few rows: each choice reads its own expert's weights.
Dispatch chosen_experts_call(const Site& site, const ExpertProduct& product);
// The last product of few rows with the sum over a row's experts.
Dispatch mixed_experts_call(const Site& site, const ExpertParts& parts);
// Many rows: choices by expert in tiles of `tile` rows, as a plan in memory says.
struct ExpertPlan {
  uint32_t tile = 0, tiles = 0;
  uint64_t bytes = 0;
};
ExpertPlan expert_plan(const Site& site, const Launch& matmul);
Dispatch group_experts_call(const Site& site, const Launch& matmul, const ExpertPlan& plan,
                            Operand memory);
Dispatch grouped_experts_call(const Site& site, const ExpertProduct& product,
                              const ExpertPlan& plan, Operand memory, Numbers x, Numbers y);
Dispatch mix_experts_call(const Site& site, const Launch& mix, const Launch* add);

// Products of one form of weight; `matmuls` are some of the products'.
Dispatch few_rows_products_call(const Site& site, const Products& products,
                                std::span<const Launch* const> matmuls);
// `x` and `y` say in which numbers rows are read and the result is written.
Dispatch many_rows_products_call(const Site& site, const Products& products,
                                 std::span<const Launch* const> matmuls, Numbers x, Numbers y);

// The best of each row of logits: the largest of its groups, then a choice. They share
// `top_k_bytes`.
uint64_t top_k_bytes(const Site& site, const Launch& launch);
Dispatch top_k_groups_call(const Site& site, const Launch& launch, Operand found);
Dispatch top_k_choose_call(const Site& site, const Launch& launch, Operand found);

// The 16-bit numbers that many rows are multiplied in: those of the weights' form.
Numbers operand_numbers(const Site& site, const Launch& matmul);
// Many rows are multiplied with cooperative matrices.
bool is_cooperative(const Site& site, const Launch& matmul);

}  // namespace tyto::vulkan
