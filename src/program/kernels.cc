#include "program/kernels.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "program/top_k.h"

namespace tyto {
namespace {

const Slot& slot_of(const Program& program, const Launch& launch, size_t arg) {
  return program.slots[launch.args[arg].slot];
}

uint64_t activation_bytes(const Slot& slot, const Call& call) {
  return call.rows * row_bytes(slot.dtype, slot.cols);
}

// Sum over a segment's rows of the positions each one attends to (its own included).
uint64_t attended_positions(const Segment& segment, uint32_t window) {
  const auto all = [](uint64_t rows, uint64_t before) {
    return rows * before + rows * (rows + 1) / 2;
  };
  if (window == 0 || segment.end() <= window) return all(segment.rows, segment.position);
  const uint64_t growing = segment.position < window ? window - segment.position : 0;
  return all(growing, segment.position) + (segment.rows - growing) * window;
}

// Positions that its rows attend to together.
uint64_t seen_positions(const Segment& segment, uint32_t window) {
  const uint64_t end = segment.end();
  return window == 0 ? end : std::min<uint64_t>(end, uint64_t{window} + segment.rows - 1);
}

// Every argument is an activation of call.rows rows; `flops_per_value` on the first one.
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
  total.flops = call.rows * slot_of(program, launch, 0).cols * flops_per_value;
  return total;
}

// Those that a call reads and writes.
uint64_t state_bytes(const Program& program, const Launch& launch, const Call& call) {
  uint64_t states = 0;
  for (const Segment& segment : call.segments())
    states += (segment.state_from == kNoState ? 0 : 1) + segment.kept.size() + 1;
  const Slot& slot = slot_of(program, launch, state_arg(launch));
  return states * launch.shape.state_rows * row_bytes(slot.dtype, slot.cols);
}

Cost embed_cost(const Program& program, const Launch& launch, const Call& call) {
  const Slot& table = slot_of(program, launch, 1);
  const Slot& out = slot_of(program, launch, 2);
  return {call.rows * row_bytes(table.dtype, table.cols) + activation_bytes(out, call), 0};
}

Cost rope_table_cost(const Program& program, const Launch& launch, const Call& call) {
  const Slot& table = slot_of(program, launch, 1);
  return {activation_bytes(table, call), call.rows * table.cols};
}

Cost rmsnorm_cost(const Program& program, const Launch& launch, const Call& call) {
  return elementwise(program, launch, call, 4);
}

Cost matmul_cost(const Program& program, const Launch& launch, const Call& call) {
  const Slot& x = slot_of(program, launch, 0);
  const Slot& weight = slot_of(program, launch, 1);
  const Slot& y = slot_of(program, launch, 2);
  Cost total{weight.bytes() + activation_bytes(x, call) + activation_bytes(y, call),
             2 * call.rows * weight.rows * weight.cols};
  if (launch.args.size() > 3) total.bytes += slot_of(program, launch, 3).bytes();
  return total;
}

Cost matmul_q8_cost(const Program& program, const Launch& launch, const Call& call) {
  const Slot& weight = slot_of(program, launch, 1);
  return {weight.bytes() + slot_of(program, launch, 2).bytes() +
              activation_bytes(slot_of(program, launch, 0), call) +
              activation_bytes(slot_of(program, launch, 3), call),
          2 * call.rows * weight.rows * weight.cols};
}

Cost rope_cost(const Program& program, const Launch& launch, const Call& call) {
  return elementwise(program, launch, call, 3);
}

Cost kv_append_cost(const Program& program, const Launch& launch, const Call& call) {
  const Slot& k = slot_of(program, launch, 0);
  const Slot& cache = slot_of(program, launch, 2);
  return {2 * (activation_bytes(k, call) + call.rows * row_bytes(cache.dtype, k.cols)), 0};
}

Cost attention_cost(const Program& program, const Launch& launch, const Call& call) {
  const LaunchShape& shape = launch.shape;
  const Slot& q = slot_of(program, launch, 0);
  const Slot& cache = slot_of(program, launch, 1);
  uint64_t cached = 0, attended = 0;  // positions
  for (const Segment& segment : call.segments()) {
    cached += seen_positions(segment, shape.window);
    attended += attended_positions(segment, shape.window);
  }
  return {2 * activation_bytes(q, call) +
              2 * cached * shape.kv_heads * row_bytes(cache.dtype, shape.head_dim),
          4 * attended * shape.heads * shape.head_dim};
}

Cost add_cost(const Program& program, const Launch& launch, const Call& call) {
  return elementwise(program, launch, call, 1);
}

Cost swiglu_cost(const Program& program, const Launch& launch, const Call& call) {
  return elementwise(program, launch, call, 5);
}

// An exponential, a division and three more.
Cost soft_cap_cost(const Program& program, const Launch& launch, const Call& call) {
  return elementwise(program, launch, call, 5);
}

Cost scale_cost(const Program& program, const Launch& launch, const Call& call) {
  return elementwise(program, launch, call, 1);
}

Cost layernorm_cost(const Program& program, const Launch& launch, const Call& call) {
  return elementwise(program, launch, call, 7);
}

Cost cast_cost(const Program& program, const Launch& launch, const Call& call) {
  return elementwise(program, launch, call, 0);
}

// A comparison, an exponential and an addition.
Cost top_k_cost(const Program& program, const Launch& launch, const Call& call) {
  return elementwise(program, launch, call, 3);
}

Cost prompt_attention_cost(const Program& program, const Launch& launch, const Call& call) {
  const LaunchShape& shape = launch.shape;
  Cost total = elementwise(program, launch, call, 0);
  const Segment rows{.rows = call.rows};
  total.flops = 4 * attended_positions(rows, shape.window) * shape.heads * shape.head_dim;
  return total;
}

Cost gather_rows_cost(const Program& program, const Launch& launch, const Call& call) {
  return elementwise(program, launch, call, 0);
}

// A comparison with each expert for each choice, and the softmax.
Cost route_cost(const Program& program, const Launch& launch, const Call& call) {
  Cost total = matmul_cost(program, launch, call);
  total.bytes += activation_bytes(slot_of(program, launch, 3), call);
  total.flops += call.rows * slot_of(program, launch, 2).cols * slot_of(program, launch, 1).rows;
  return total;
}

Cost expert_matmul_cost(const Program& program, const Launch& launch, const Call& call) {
  const Slot& weight = slot_of(program, launch, 1);
  const uint64_t choices = call.rows * slot_of(program, launch, 2).cols;
  return {most_experts(program, launch, call) * expert_bytes(program, launch) +
              activation_bytes(slot_of(program, launch, 0), call) +
              activation_bytes(slot_of(program, launch, 2), call) +
              activation_bytes(slot_of(program, launch, 3), call),
          2 * choices * (weight.rows / launch.shape.experts) * weight.cols};
}

Cost mix_experts_cost(const Program& program, const Launch& launch, const Call& call) {
  return elementwise(program, launch, call, 2);
}

// A multiplication with each tap, and the activation's work.
Cost causal_conv_cost(const Program& program, const Launch& launch, const Call& call) {
  const Slot& x = slot_of(program, launch, 0);
  const Slot& weight = slot_of(program, launch, 1);
  Cost total{activation_bytes(x, call) + activation_bytes(slot_of(program, launch, 3), call) +
                 weight.bytes() + state_bytes(program, launch, call),
             2 * call.rows * weight.cols};
  if (launch.args.size() > 4) total.bytes += slot_of(program, launch, 4).bytes();
  if (launch.shape.activation != Activation::none) total.flops += 4 * call.rows * x.cols;
  return total;
}

// Two products with the state of each head, its update, and what the delta rule finds under a key.
Cost recurrence_cost(const Program& program, const Launch& launch, const Call& call,
                     uint64_t products) {
  Cost total{state_bytes(program, launch, call), 0};
  for (const Arg& arg : launch.args) {
    const Slot& slot = program.slots[arg.slot];
    if (slot.kind == SlotKind::weight) total.bytes += slot.bytes();
    if (slot.kind != SlotKind::weight && slot.kind != SlotKind::state)
      total.bytes += activation_bytes(slot, call);
  }
  const Slot& state = slot_of(program, launch, state_arg(launch));
  total.flops = 2 * products * call.rows * launch.shape.state_rows * state.cols;
  return total;
}

Cost delta_rule_cost(const Program& program, const Launch& launch, const Call& call) {
  return recurrence_cost(program, launch, call, 4);
}

Cost mamba2_cost(const Program& program, const Launch& launch, const Call& call) {
  return recurrence_cost(program, launch, call, 3);
}

Cost split_cost(const Program& program, const Launch& launch, const Call& call) {
  return elementwise(program, launch, call, 0);
}

// An exponential, a division and a multiply-add.
Cost add_gated_cost(const Program& program, const Launch& launch, const Call& call) {
  return elementwise(program, launch, call, 2);
}

// Shapes.
// ---------------------------------------------------------------------------------------------

uint64_t q_width(const LaunchShape& shape) {
  return uint64_t{shape.heads} * shape.head_dim;
}

uint64_t kv_width(const LaunchShape& shape) {
  return uint64_t{shape.kv_heads} * shape.head_dim;
}

bool embed_fits(const Program& program, const Launch& launch) {
  return slot_of(program, launch, 0).dtype == DType::i32 &&
         slot_of(program, launch, 1).cols == slot_of(program, launch, 2).cols;
}

bool rope_table_fits(const Program& program, const Launch& launch) {
  return slot_of(program, launch, 1).cols == 2 * slot_of(program, launch, 0).cols;
}

bool rmsnorm_fits(const Program& program, const Launch& launch) {
  const uint64_t width = slot_of(program, launch, 0).cols, group = slot_of(program, launch, 1).cols;
  return width == slot_of(program, launch, 2).cols && group > 0 && width % group == 0 &&
         group % std::max(1u, launch.shape.groups) == 0;
}

bool matmul_fits(const Program& program, const Launch& launch) {
  const Slot& weight = slot_of(program, launch, 1);
  return slot_of(program, launch, 0).cols == weight.cols &&
         slot_of(program, launch, 2).cols == weight.rows &&
         (launch.args.size() == 3 || slot_of(program, launch, 3).cols == weight.rows);
}

bool matmul_i8_fits(const Program& program, const Launch& launch) {
  return slot_of(program, launch, 0).dtype == DType::i8 &&
         slot_of(program, launch, 1).dtype == DType::i8 &&
         slot_of(program, launch, 2).dtype == DType::i32 && matmul_fits(program, launch);
}

bool matmul_q8_fits(const Program& program, const Launch& launch) {
  const Slot& weight = slot_of(program, launch, 1);
  return weight.dtype == DType::i8 && slot_of(program, launch, 0).cols == weight.cols &&
         slot_of(program, launch, 2).cols == weight.rows &&
         slot_of(program, launch, 3).cols == weight.rows;
}

bool rope_fits(const Program& program, const Launch& launch) {
  const uint64_t width = q_width(launch.shape), table = slot_of(program, launch, 1).cols;
  const uint32_t rotated = launch.shape.rotated;
  const bool fits = rotated == 0 ? table == launch.shape.head_dim || table == width
                                 : table == rotated && rotated <= launch.shape.head_dim;
  return slot_of(program, launch, 0).cols == width && fits &&
         (launch.args.size() == 2 || slot_of(program, launch, 2).cols == width);
}

bool cache_fits(const Slot& cache, const LaunchShape& shape) {
  if (cache.cols != shape.head_dim || shape.kv_heads == 0) return false;
  if (shape.page == 0) return cache.rows == uint64_t{shape.kv_heads} * shape.context;
  return shape.kv_group == 1 && cache.rows % (uint64_t{shape.kv_heads} * shape.page) == 0;
}

bool kv_append_fits(const Program& program, const Launch& launch) {
  const LaunchShape& shape = launch.shape;
  return shape.kv_group > 0 && shape.kv_heads % shape.kv_group == 0 &&
         slot_of(program, launch, 0).cols == kv_width(shape) &&
         slot_of(program, launch, 1).cols == kv_width(shape) &&
         cache_fits(slot_of(program, launch, 2), shape) &&
         cache_fits(slot_of(program, launch, 3), shape);
}

bool sinks_fit(const Program& program, const Launch& launch) {
  return launch.args.size() == 4 || slot_of(program, launch, 4).cols == launch.shape.heads;
}

bool attention_fits(const Program& program, const Launch& launch) {
  const LaunchShape& shape = launch.shape;
  return sinks_fit(program, launch) && slot_of(program, launch, 0).cols == q_width(shape) &&
         slot_of(program, launch, 3).cols == q_width(shape) && shape.kv_heads > 0 &&
         shape.heads % shape.kv_heads == 0 && cache_fits(slot_of(program, launch, 1), shape) &&
         cache_fits(slot_of(program, launch, 2), shape);
}

bool prompt_attention_fits(const Program& program, const Launch& launch) {
  const LaunchShape& shape = launch.shape;
  return sinks_fit(program, launch) && slot_of(program, launch, 0).cols == q_width(shape) &&
         slot_of(program, launch, 3).cols == q_width(shape) && shape.kv_heads > 0 &&
         shape.heads % shape.kv_heads == 0 && slot_of(program, launch, 1).cols == kv_width(shape) &&
         slot_of(program, launch, 2).cols == kv_width(shape);
}

bool top_k_fits(const Program& program, const Launch& launch) {
  const Slot &logits = slot_of(program, launch, 0), &row = slot_of(program, launch, 1);
  return row.dtype == DType::i32 && row.cols % 2 == 0 && row.cols >= TopKRow::words_for(1) &&
         row.cols <= TopKRow::words_for(logits.cols);
}

bool route_fits(const Program& program, const Launch& launch) {
  const Slot &router = slot_of(program, launch, 1), &ids = slot_of(program, launch, 2);
  const LaunchShape& shape = launch.shape;
  const bool grouped = shape.groups > 0;
  if (grouped && (router.rows % shape.groups != 0 || shape.groups_used == 0 ||
                  shape.groups_used > shape.groups ||
                  ids.cols > router.rows / shape.groups * shape.groups_used))
    return false;
  return slot_of(program, launch, 0).cols == router.cols && ids.dtype == DType::i32 &&
         ids.cols > 0 && ids.cols <= router.rows && slot_of(program, launch, 3).cols == ids.cols &&
         (launch.args.size() == 4 || slot_of(program, launch, 4).cols == router.rows);
}

bool expert_matmul_fits(const Program& program, const Launch& launch) {
  const Slot &x = slot_of(program, launch, 0), &weight = slot_of(program, launch, 1);
  const Slot &ids = slot_of(program, launch, 2), &y = slot_of(program, launch, 3);
  const uint32_t experts = launch.shape.experts;
  if (experts == 0 || weight.rows % experts != 0 || ids.dtype != DType::i32 || ids.cols == 0)
    return false;
  return (x.cols == weight.cols || x.cols == ids.cols * weight.cols) &&
         y.cols == ids.cols * (weight.rows / experts) &&
         (launch.args.size() == 4 || slot_of(program, launch, 4).cols == weight.rows);
}

bool mix_experts_fits(const Program& program, const Launch& launch) {
  return slot_of(program, launch, 0).cols ==
         slot_of(program, launch, 1).cols * slot_of(program, launch, 2).cols;
}

bool state_fits(const Slot& state, const LaunchShape& shape) {
  return state.kind == SlotKind::state && state.dtype == DType::f32 && shape.state_rows > 0 &&
         state.rows > 0 && state.rows % shape.state_rows == 0;
}

bool causal_conv_fits(const Program& program, const Launch& launch) {
  const Slot &x = slot_of(program, launch, 0), &weight = slot_of(program, launch, 1);
  const Slot& state = slot_of(program, launch, 2);
  const uint32_t before = launch.shape.state_rows;
  return state_fits(state, launch.shape) && before >= 1 && before < kMostTaps && weight.rows == 1 &&
         weight.cols == x.cols * (before + 1) && state.cols == x.cols &&
         slot_of(program, launch, 3).cols == x.cols &&
         (launch.args.size() == 4 || slot_of(program, launch, 4).cols == x.cols);
}

// Whether a row with keys and queries of `kv_heads` heads beside the values of `heads` fits the
// state, whose argument is `state`, and the result behind it.
bool recurrence_fits(const Program& program, const Launch& launch, size_t state) {
  const LaunchShape& shape = launch.shape;
  const Slot &x = slot_of(program, launch, 0), &states = slot_of(program, launch, state);
  const Slot& y = slot_of(program, launch, state + 1);
  if (shape.heads == 0 || shape.kv_heads == 0 || shape.heads % shape.kv_heads != 0 ||
      !state_fits(states, shape) || shape.state_rows % shape.heads != 0)
    return false;
  for (size_t arg = 1; arg < state; ++arg)
    if (slot_of(program, launch, arg).cols != shape.heads) return false;
  const uint64_t width = shape.state_rows / shape.heads;  // a key's
  return y.cols == shape.heads * states.cols && x.cols == y.cols + 2 * shape.kv_heads * width;
}

bool delta_rule_fits(const Program& program, const Launch& launch) {
  return recurrence_fits(program, launch, 5);
}

bool mamba2_fits(const Program& program, const Launch& launch) {
  return recurrence_fits(program, launch, 5);
}

bool split_fits(const Program& program, const Launch& launch) {
  const uint64_t first = slot_of(program, launch, 1).cols,
                 second = slot_of(program, launch, 2).cols;
  const uint32_t groups = launch.shape.heads;
  return groups > 0 && first % groups == 0 && second % groups == 0 && first > 0 && second > 0 &&
         slot_of(program, launch, 0).cols == first + second;
}

bool add_gated_fits(const Program& program, const Launch& launch) {
  return slot_of(program, launch, 0).cols == slot_of(program, launch, 1).cols &&
         slot_of(program, launch, 2).cols == 1;
}

bool same_widths(const Program& program, const Launch& launch) {
  for (size_t i = 1; i < launch.args.size(); ++i)
    if (slot_of(program, launch, i).cols != slot_of(program, launch, 0).cols) return false;
  return true;
}

// The table.
// ---------------------------------------------------------------------------------------------

constexpr ArgSpec ids(std::string_view name) {
  return {name, ArgKind::ids, true, false};
}
constexpr ArgSpec matrix(std::string_view name) {
  return {name, ArgKind::matrix, true, false};
}
constexpr ArgSpec vector(std::string_view name) {
  return {name, ArgKind::vector, true, false};
}
constexpr ArgSpec in(std::string_view name, ArgKind kind = ArgKind::rows) {
  return {name, kind, true, false};
}
constexpr ArgSpec out(std::string_view name, ArgKind kind = ArgKind::rows) {
  return {name, kind, false, true};
}
constexpr ArgSpec inout(std::string_view name, ArgKind kind = ArgKind::rows) {
  return {name, kind, true, true};
}

using K = Kernel;
using A = ArgKind;

// clang-format off
constexpr std::array<KernelSpec, 26> kSpecs = {{
    {K::embed, "embed", "x[t] = table[tokens[t]]",
     {ids("tokens"), matrix("table"), out("x")}, 3, 3, false,
     Operator::other, embed_fits, embed_cost},
    {K::rope_table, "rope_table", "factor * cos and sin of position * frequency, a row for each of the call's",
     {vector("frequencies"), out("table")}, 2, 2, false,
     Operator::norm_rope, rope_table_fits, rope_table_cost},
    {K::rmsnorm, "rmsnorm", "y = x / rms(x) * weight over each weight-sized group",
     {in("x"), vector("weight"), out("y")}, 3, 3, false,
     Operator::norm_rope, rmsnorm_fits, rmsnorm_cost},
    {K::matmul, "matmul", "y = x * weight^T (+ bias)",
     {in("x"), matrix("weight"), out("y"), vector("bias")}, 3, 4, false,
     Operator::projection, matmul_fits, matmul_cost},
    {K::rope, "rope", "rotates each head of x by a row for all or one each, in place or into y",
     {inout("x"), in("table"), out("y")}, 2, 3, true,
     Operator::norm_rope, rope_fits, rope_cost},
    {K::kv_append, "kv_append", "writes k and v at the segments' positions",
     {in("k"), in("v"), out("k_cache", A::cache), out("v_cache", A::cache)}, 4, 4, false,
     Operator::attention, kv_append_fits, kv_append_cost},
    {K::attention, "attention", "causal softmax(q k^T / sqrt(head_dim)) v, each segment in its own cache",
     {in("q"), in("k_cache", A::cache), in("v_cache", A::cache), out("y"), vector("sinks")}, 4, 5, false,
     Operator::attention, attention_fits, attention_cost},
    {K::add, "add", "x += y, or z = x + y",
     {inout("x"), in("y"), out("z")}, 2, 3, true,
     Operator::other, same_widths, add_cost},
    {K::swiglu, "swiglu", "y = activation(gate) * up",
     {in("gate"), in("up"), out("y")}, 3, 3, false,
     Operator::feed_forward, same_widths, swiglu_cost},
    {K::gather_rows, "gather_rows", "y = the segments' rows of x, one segment's after the other's",
     {in("x", A::gathered), out("y")}, 2, 2, false,
     Operator::other, same_widths, gather_rows_cost},
    {K::cast, "cast", "y = x, in the type of y",
     {in("x"), out("y")}, 2, 2, false,
     Operator::other, same_widths, cast_cost},
    {K::prompt_attention, "prompt_attention", "attention of a prompt's own rows, from position 0, without a cache",
     {in("q"), in("k"), in("v"), out("y"), vector("sinks")}, 4, 5, false,
     Operator::attention, prompt_attention_fits, prompt_attention_cost},
    {K::matmul_i8, "matmul_i8", "y = x * weight^T in integers: i8 by i8 into i32",
     {in("x", A::integers), matrix("weight"), out("y", A::integers)}, 3, 3, false,
     Operator::projection, matmul_i8_fits, matmul_cost},
    {K::matmul_q8, "matmul_q8", "y = x * (scales * weight)^T: i8 weights, each row of x rounded to 8 bits",
     {in("x"), matrix("weight"), vector("scales"), out("y")}, 4, 4, false,
     Operator::projection, matmul_q8_fits, matmul_q8_cost},
    {K::top_k, "top_k", "the best of each row of logits, and what there is to know of the others (TopKRow)",
     {in("logits"), out("candidates", A::integers)}, 2, 2, false,
     Operator::head, top_k_fits, top_k_cost},
    {K::scale, "scale", "x *= factor, or y = factor * x",
     {inout("x"), out("y")}, 1, 2, true,
     Operator::other, same_widths, scale_cost},
    {K::soft_cap, "soft_cap", "x = factor * tanh(x / factor), or that into y",
     {inout("x"), out("y")}, 1, 2, true,
     Operator::head, same_widths, soft_cap_cost},
    {K::layernorm, "layernorm", "y = (x - mean(x)) / deviation(x) * weight",
     {in("x"), vector("weight"), out("y")}, 3, 3, false,
     Operator::norm_rope, same_widths, layernorm_cost},
    {K::route, "route", "the experts with the largest x * weight^T (+ bias), in ascending order, and their softmax; or of sigmoids, where the bias counts for the choice alone",
     {in("x"), matrix("weight"), out("ids", A::integers), out("weights"), vector("bias")}, 4, 5, false,
     Operator::feed_forward, route_fits, route_cost},
    {K::expert_matmul, "expert_matmul", "y[i] = x * weight[ids[i]]^T (+ bias[ids[i]]) for each id of a row; x is one row for all, or one each",
     {in("x"), matrix("weight"), in("ids", A::integers), out("y"), vector("bias")}, 4, 5, false,
     Operator::feed_forward, expert_matmul_fits, expert_matmul_cost},
    {K::mix_experts, "mix_experts", "y = the sum of weights[i] * x[i]",
     {in("x"), in("weights"), out("y")}, 3, 3, false,
     Operator::feed_forward, mix_experts_fits, mix_experts_cost},
    {K::causal_conv, "causal_conv", "y = activation(each value's sum of weight * x over the last rows of its sequence (+ bias))",
     {in("x"), vector("weight"), inout("state", A::state), out("y"), vector("bias")}, 4, 5, false,
     Operator::recurrence, causal_conv_fits, causal_conv_cost},
    {K::split, "split", "y and z = the first and the second part of each of `heads` stretches of x",
     {in("x"), out("y"), out("z")}, 3, 3, false,
     Operator::other, split_fits, split_cost},
    {K::add_gated, "add_gated", "x += sigmoid(gate) * y, with one gate for a row",
     {inout("x"), in("y"), in("gate")}, 3, 3, true,
     Operator::feed_forward, add_gated_fits, add_gated_cost},
    {K::delta_rule, "delta_rule", "the gated delta rule of each head: its state fades, forgets what it has under the key, learns the value, and answers the query; keys and queries of length one",
     {in("qkv"), in("time"), in("strength"), vector("time_bias"), vector("rates"), inout("state", A::state), out("y")}, 7, 7, false,
     Operator::recurrence, delta_rule_fits, delta_rule_cost},
    {K::mamba2, "mamba2", "the state-space recurrence of Mamba-2: each head's state fades, takes in time * x under B, and answers C, and skip * x is added",
     {in("xbc"), in("time"), vector("time_bias"), vector("rates"), vector("skip"), inout("state", A::state), out("y")}, 7, 7, false,
     Operator::recurrence, mamba2_fits, mamba2_cost},
}};
// clang-format on
// spec() looks up by position.
static_assert(kSpecs.size() == static_cast<size_t>(kLastKernel) + 1);
static_assert([] {
  for (size_t i = 0; i < kSpecs.size(); ++i)
    if (kSpecs[i].kernel != static_cast<Kernel>(i)) return false;
  return true;
}());

}  // namespace

const KernelSpec& spec(Kernel kernel) {
  return kSpecs[static_cast<size_t>(kernel)];
}

ArgSpec arg_spec(const Launch& launch, size_t arg) {
  const KernelSpec& kernel = spec(launch.kernel);
  ArgSpec result = kernel.args[arg];
  const bool writes_elsewhere = kernel.may_be_in_place && launch.args.size() > kernel.required;
  if (arg == 0 && writes_elsewhere) result.writes = false;
  return result;
}

Operator operator_of(const Launch& launch) {
  if (launch.role == Role::attn_gated) return Operator::attention;
  for (const Role role : {Role(Role::conv_in), Role(Role::conv_gated), Role::recur | Facet::norm,
                          Role(Role::recur_gated)})
    if (launch.role == role) return Operator::recurrence;
  if (launch.kernel == Kernel::split)
    return launch.role == Role::recur_time ? Operator::recurrence : Operator::attention;
  const Operator own = spec(launch.kernel).op;
  const bool is_product = own == Operator::projection || launch.kernel == Kernel::cast;
  if (!is_product) return own;
  const Role::Part part = launch.role.part;
  if (part == Role::none) return own;
  for (const Role::Part each : {Role::gate, Role::up, Role::down, Role::shared_gate,
                                Role::shared_up, Role::shared_down, Role::shared_share})
    if (part == each) return Operator::feed_forward;
  return part == Role::lm_head ? Operator::head : Operator::projection;
}

Cost cost(const Program& program, const Launch& launch, const Call& call) {
  return spec(launch.kernel).cost(program, launch, call);
}

Cost cost(const Program& program, const Call& call) {
  Cost total;
  for (const Launch& launch : program.launches) total += cost(program, launch, call);
  return total;
}

namespace {

bool looks_at_segments(Kernel kernel) {
  return kernel == Kernel::rope_table || kernel == Kernel::kv_append ||
         kernel == Kernel::attention || kernel == Kernel::prompt_attention ||
         kernel == Kernel::gather_rows || kernel == Kernel::causal_conv ||
         kernel == Kernel::delta_rule || kernel == Kernel::mamba2;
}

}  // namespace

Cost CallCost::of(const Call& call) {
  if (rows_ != call.rows) {
    rows_ = call.rows;
    by_rows_ = {};
    for (const Launch& launch : program_.launches)
      if (!looks_at_segments(launch.kernel)) by_rows_ += cost(program_, launch, call);
  }
  Cost total = by_rows_;
  for (const Launch& launch : program_.launches)
    if (looks_at_segments(launch.kernel)) total += cost(program_, launch, call);
  return total;
}

uint64_t expert_bytes(const Program& program, const Launch& launch) {
  uint64_t bytes = slot_of(program, launch, 1).bytes();
  if (launch.args.size() > 4) bytes += slot_of(program, launch, 4).bytes();
  return bytes / launch.shape.experts;
}

uint64_t most_experts(const Program& program, const Launch& launch, const Call& call) {
  return std::min<uint64_t>(launch.shape.experts, call.rows * slot_of(program, launch, 2).cols);
}

namespace {

size_t first_arg(const Launch& launch, ArgKind kind) {
  const KernelSpec& kernel = spec(launch.kernel);
  for (size_t i = 0; i < kernel.most; ++i)
    if (kernel.args[i].kind == kind) return i;
  return kNoArg;
}

}  // namespace

size_t cache_arg(const Launch& launch) {
  return first_arg(launch, ArgKind::cache);
}

size_t state_arg(const Launch& launch) {
  return first_arg(launch, ArgKind::state);
}

std::string beyond_causal_attention(const Program& program, const Launch& launch) {
  const auto attends = [](const Launch& each) {
    return each.kernel == Kernel::attention || each.kernel == Kernel::prompt_attention;
  };
  if (!attends(launch) && launch.kernel != Kernel::kv_append) return {};
  for (const Launch& each : program.launches) {
    if (!attends(each)) continue;
    if (each.shape.window != 0) return "window";
    if (each.shape.score_cap != 0) return "bound of scores";
    if (each.args.size() > 4) return "sinks";
  }
  return {};
}

void check(const Program& program) {
  for (const Launch& launch : program.launches) {
    const KernelSpec& kernel = spec(launch.kernel);
    const bool counted = launch.args.size() >= kernel.required && launch.args.size() <= kernel.most;
    const bool in_range = std::all_of(launch.args.begin(), launch.args.end(), [&](const Arg& arg) {
      return arg.slot < program.slots.size();
    });
    if (!counted || !in_range || !kernel.fits(program, launch))
      throw Error(ErrorCode::device, program.name + ": " + launch.name,
                  fmt::format("arguments do not fit kernel {}", kernel.name));
  }
}

namespace {

std::string label_of(const Launch& launch) {
  return launch.role == Role::none ? launch.name : name(launch.role);
}

}  // namespace

std::vector<LaunchGroup> groups_of_one(const Program& program) {
  std::vector<LaunchGroup> groups;
  for (size_t i = 0; i < program.launches.size(); ++i) groups.push_back({i, 1});
  return groups;
}

std::vector<uint16_t> launch_names(Trace& trace, const Program& program,
                                   std::span<const LaunchGroup> groups) {
  std::vector<uint16_t> result;
  for (const LaunchGroup& group : groups) {
    const Launch& first = program.launches[group.first];
    std::string label = label_of(first);
    for (size_t i = 1; i < group.count; ++i)
      label += "+" + label_of(program.launches[group.first + i]);
    result.push_back(
        trace.name({.label = label,
                    .layer = first.layer,
                    .block = first.block == Block::none ? "" : std::string(name(first.block)),
                    .op = operator_of(first)}));
  }
  return result;
}

EventName dispatch_name(const Program& program) {
  const Launch& first = program.launches.front();
  if (!program.dispatch.empty()) return {.label = program.dispatch, .layer = first.layer};
  if (program.launches.size() == 1) return {.label = label_of(first), .layer = first.layer};
  const bool is_block =
      std::all_of(program.launches.begin(), program.launches.end(), [&](const Launch& launch) {
        return launch.block == first.block && launch.layer == first.layer;
      });
  if (is_block && first.block != Block::none)
    return {.label = std::string(name(first.block)), .layer = first.layer};
  return {.label = program.name};
}

Event launch_event(Trace& trace, const Program& program, const LaunchGroup& group, uint16_t name,
                   const Call& call, uint8_t device) {
  Cost declared;
  for (size_t i = group.first; i < group.first + group.count; ++i)
    declared += cost(program, program.launches[i], call);
  return {.bytes = declared.bytes,
          .flops = declared.flops,
          .dispatch = trace.dispatch(),
          .token = trace.token(),
          .position = call.segments().front().position,
          .rows = call.rows,
          .name = name,
          .launches = static_cast<uint16_t>(group.count),
          .device = device,
          .kind = EventKind::launch};
}

void record_launches(Trace& trace, const Program& program, std::span<const LaunchGroup> groups,
                     std::span<const uint16_t> names, const Call& call, uint8_t device,
                     uint64_t start_ns, std::span<const uint64_t> ends_ns,
                     std::span<const uint64_t> unread_bytes) {
  for (size_t i = 0; i < names.size(); ++i) {
    Event event = launch_event(trace, program, groups[i], names[i], call, device);
    event.start_ns = i == 0 ? start_ns : ends_ns[i - 1];
    event.end_ns = ends_ns[i];
    if (!unread_bytes.empty()) event.bytes -= unread_bytes[i];
    trace.push(event);
  }
}

}  // namespace tyto
