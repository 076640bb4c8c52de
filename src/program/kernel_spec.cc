#include "program/kernel_spec.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace tyto {
namespace {

const Slot& slot_of(const Program& program, const Launch& launch, size_t arg) {
  return program.slots[launch.args[arg].slot];
}

uint64_t activation_bytes(const Slot& slot, const Call& call) {
  return call.tokens * row_bytes(slot.dtype, slot.cols);
}

// Sum over the call's rows of the positions each one attends to (its own included).
uint64_t attended_positions(const Call& call) {
  const uint64_t n = call.tokens;
  return n * call.position + n * (n + 1) / 2;
}

// Every argument is an activation of call.tokens rows; `flops_per_value` on the first one.
Cost elementwise(const Program& program, const Launch& launch, const Call& call,
                 uint64_t flops_per_value) {
  Cost total;
  for (const Arg& arg : launch.args) {
    const Slot& slot = program.slots[arg.slot];
    if (slot.kind == SlotKind::weight)
      total.bytes += slot.bytes();
    else
      total.bytes += activation_bytes(slot, call) * (arg.reads + arg.writes);
  }
  total.flops = call.tokens * slot_of(program, launch, 0).cols * flops_per_value;
  return total;
}

Cost embed_cost(const Program& program, const Launch& launch, const Call& call) {
  const Slot& table = slot_of(program, launch, 1);
  const Slot& out = slot_of(program, launch, 2);
  return {call.tokens * row_bytes(table.dtype, table.cols) + activation_bytes(out, call), 0};
}

Cost rope_table_cost(const Program& program, const Launch& launch, const Call& call) {
  const Slot& table = slot_of(program, launch, 1);
  return {activation_bytes(table, call), call.tokens * table.cols};
}

Cost rmsnorm_cost(const Program& program, const Launch& launch, const Call& call) {
  return elementwise(program, launch, call, 4);
}

Cost matmul_cost(const Program& program, const Launch& launch, const Call& call) {
  const Slot& x = slot_of(program, launch, 0);
  const Slot& weight = slot_of(program, launch, 1);
  const Slot& y = slot_of(program, launch, 2);
  Cost total{weight.bytes() + activation_bytes(x, call) + activation_bytes(y, call),
             2 * call.tokens * weight.rows * weight.cols};
  if (launch.args.size() > 3) total.bytes += slot_of(program, launch, 3).bytes();
  return total;
}

Cost matmul_q8_cost(const Program& program, const Launch& launch, const Call& call) {
  const Slot& weight = slot_of(program, launch, 1);
  return {weight.bytes() + slot_of(program, launch, 2).bytes() +
              activation_bytes(slot_of(program, launch, 0), call) +
              activation_bytes(slot_of(program, launch, 3), call),
          2 * call.tokens * weight.rows * weight.cols};
}

Cost rope_cost(const Program& program, const Launch& launch, const Call& call) {
  return elementwise(program, launch, call, 3);
}

Cost kv_append_cost(const Program& program, const Launch& launch, const Call& call) {
  const Slot& k = slot_of(program, launch, 0);
  const Slot& cache = slot_of(program, launch, 2);
  return {2 * (activation_bytes(k, call) + call.tokens * row_bytes(cache.dtype, k.cols)), 0};
}

Cost attention_cost(const Program& program, const Launch& launch, const Call& call) {
  const LaunchShape& shape = launch.shape;
  const Slot& q = slot_of(program, launch, 0);
  const Slot& cache = slot_of(program, launch, 1);
  const uint64_t context = call.position + call.tokens;
  const uint64_t kv_bytes = 2 * context * shape.kv_heads * row_bytes(cache.dtype, shape.head_dim);
  return {2 * activation_bytes(q, call) + kv_bytes,
          4 * attended_positions(call) * shape.heads * shape.head_dim};
}

Cost add_cost(const Program& program, const Launch& launch, const Call& call) {
  return elementwise(program, launch, call, 1);
}

Cost swiglu_cost(const Program& program, const Launch& launch, const Call& call) {
  return elementwise(program, launch, call, 5);
}

Cost cast_cost(const Program& program, const Launch& launch, const Call& call) {
  return elementwise(program, launch, call, 0);
}

Cost prompt_attention_cost(const Program& program, const Launch& launch, const Call& call) {
  const LaunchShape& shape = launch.shape;
  Cost total = elementwise(program, launch, call, 0);
  const uint64_t pairs = uint64_t{call.tokens} * (call.tokens + 1) / 2;
  total.flops = 4 * pairs * shape.heads * shape.head_dim;
  return total;
}

Cost gather_rows_cost(const Program& program, const Launch& launch, const Call& call) {
  return elementwise(program, launch, call, 0);
}

constexpr std::array<std::string_view, 3> kEmbedArgs = {"tokens", "table", "x"};
constexpr std::array<std::string_view, 2> kRopeTableArgs = {"frequencies", "table"};
constexpr std::array<std::string_view, 3> kNormArgs = {"x", "weight", "y"};
constexpr std::array<std::string_view, 3> kMatmulArgs = {"x", "weight", "y"};
constexpr std::array<std::string_view, 4> kMatmulQ8Args = {"x", "weight", "scales", "y"};
constexpr std::array<std::string_view, 2> kRopeArgs = {"x", "table"};
constexpr std::array<std::string_view, 4> kKvAppendArgs = {"k", "v", "k_cache", "v_cache"};
constexpr std::array<std::string_view, 4> kAttentionArgs = {"q", "k_cache", "v_cache", "y"};
constexpr std::array<std::string_view, 2> kAddArgs = {"x", "y"};
constexpr std::array<std::string_view, 3> kSwigluArgs = {"gate", "up", "y"};
constexpr std::array<std::string_view, 2> kGatherArgs = {"x", "y"};
constexpr std::array<std::string_view, 2> kCastArgs = {"x", "y"};
constexpr std::array<std::string_view, 4> kPromptAttentionArgs = {"q", "k", "v", "y"};

constexpr std::array<KernelSpec, 14> kSpecs = {{
    {Kernel::embed, "embed", "x[t] = table[tokens[t]]", kEmbedArgs, embed_cost},
    {Kernel::rope_table, "rope_table", "cos and sin of position * frequency, one row per token",
     kRopeTableArgs, rope_table_cost},
    {Kernel::rmsnorm, "rmsnorm", "y = x / rms(x) * weight over each weight-sized group", kNormArgs,
     rmsnorm_cost},
    {Kernel::matmul, "matmul", "y = x * weight^T (+ bias)", kMatmulArgs, matmul_cost},
    {Kernel::rope, "rope",
     "rotates each head of x by a row for all or one each, in place or into y", kRopeArgs,
     rope_cost},
    {Kernel::kv_append, "kv_append", "writes k and v at the call's positions", kKvAppendArgs,
     kv_append_cost},
    {Kernel::attention, "attention", "causal softmax(q k^T / sqrt(head_dim)) v", kAttentionArgs,
     attention_cost},
    {Kernel::add, "add", "x += y, or z = x + y", kAddArgs, add_cost},
    {Kernel::swiglu, "swiglu", "y = silu(gate) * up", kSwigluArgs, swiglu_cost},
    {Kernel::gather_rows, "gather_rows", "y[t] = x[first_row + t]", kGatherArgs, gather_rows_cost},
    {Kernel::cast, "cast", "y = x, in the type of y", kCastArgs, cast_cost},
    {Kernel::prompt_attention, "prompt_attention",
     "attention of a prompt's own rows, from position 0, without a cache", kPromptAttentionArgs,
     prompt_attention_cost},
    {Kernel::matmul_i8, "matmul_i8", "y = x * weight^T in integers: i8 by i8 into i32", kMatmulArgs,
     matmul_cost},
    {Kernel::matmul_q8, "matmul_q8",
     "y = x * (scales * weight)^T: i8 weights, each row of x rounded to 8 bits", kMatmulQ8Args,
     matmul_q8_cost},
}};

bool shapes_fit(const Program& program, const Launch& launch) {
  const auto slot = [&](size_t arg) -> const Slot& { return slot_of(program, launch, arg); };
  const LaunchShape& shape = launch.shape;
  const uint64_t kv_width = uint64_t{shape.kv_heads} * shape.head_dim;
  const uint64_t q_width = uint64_t{shape.heads} * shape.head_dim;
  const uint64_t cache_rows = uint64_t{shape.kv_heads} * shape.context;
  switch (launch.kernel) {
    case Kernel::embed:
      return slot(0).dtype == DType::i32 && slot(1).cols == slot(2).cols;
    case Kernel::rope_table:
      return slot(1).cols == 2 * slot(0).cols;
    case Kernel::rmsnorm:
      return slot(0).cols == slot(2).cols && slot(1).cols > 0 && slot(0).cols % slot(1).cols == 0;
    case Kernel::matmul:
      return slot(0).cols == slot(1).cols && slot(2).cols == slot(1).rows &&
             (launch.args.size() == 3 || slot(3).cols == slot(2).cols);
    case Kernel::rope:
      return slot(0).cols == q_width &&
             (slot(1).cols == shape.head_dim || slot(1).cols == q_width) &&
             (launch.args.size() == 2 || slot(2).cols == q_width);
    case Kernel::kv_append:
      return shape.kv_group > 0 && shape.kv_heads % shape.kv_group == 0 &&
             slot(0).cols == kv_width && slot(1).cols == kv_width && slot(2).rows == cache_rows &&
             slot(3).rows == cache_rows && slot(2).cols == shape.head_dim;
    case Kernel::attention:
      return slot(0).cols == q_width && slot(3).cols == q_width && shape.kv_heads > 0 &&
             shape.heads % shape.kv_heads == 0 && slot(1).rows == cache_rows &&
             slot(2).rows == cache_rows && slot(1).cols == shape.head_dim;
    case Kernel::matmul_i8:
      return slot(0).dtype == DType::i8 && slot(1).dtype == DType::i8 &&
             slot(2).dtype == DType::i32 && slot(0).cols == slot(1).cols &&
             slot(2).cols == slot(1).rows;
    case Kernel::matmul_q8:
      return slot(1).dtype == DType::i8 && slot(0).cols == slot(1).cols &&
             slot(2).cols == slot(1).rows && slot(3).cols == slot(1).rows;
    case Kernel::prompt_attention:
      return slot(0).cols == q_width && slot(3).cols == q_width && shape.kv_heads > 0 &&
             shape.heads % shape.kv_heads == 0 && slot(1).cols == kv_width &&
             slot(2).cols == kv_width;
    case Kernel::swiglu:
      return slot(0).cols == slot(2).cols && slot(1).cols == slot(2).cols;
    case Kernel::add:
      return slot(0).cols == slot(1).cols &&
             (launch.args.size() == 2 || slot(2).cols == slot(0).cols);
    case Kernel::cast:
    case Kernel::gather_rows:
      return slot(0).cols == slot(1).cols;
  }
  return false;
}

}  // namespace

std::span<const KernelSpec> kernel_specs() {
  return kSpecs;
}

const KernelSpec& spec(Kernel kernel) {
  return kSpecs[static_cast<size_t>(kernel)];
}

Cost cost(const Program& program, const Call& call) {
  Cost total;
  for (const Launch& launch : program.launches)
    total += spec(launch.kernel).cost(program, launch, call);
  return total;
}

void check(const Program& program) {
  for (const Launch& launch : program.launches) {
    const KernelSpec& kernel = spec(launch.kernel);
    const bool has_optional = launch.kernel == Kernel::matmul || launch.kernel == Kernel::add ||
                              launch.kernel == Kernel::rope;
    const size_t most = kernel.args.size() + (has_optional ? 1 : 0);
    const bool counted = launch.args.size() >= kernel.args.size() && launch.args.size() <= most;
    const bool in_range = std::all_of(launch.args.begin(), launch.args.end(), [&](const Arg& arg) {
      return arg.slot < program.slots.size();
    });
    if (!counted || !in_range || !shapes_fit(program, launch))
      throw Error(ErrorCode::device, program.name + ": " + launch.step,
                  fmt::format("arguments do not fit kernel {}", kernel.name));
  }
}

}  // namespace tyto
