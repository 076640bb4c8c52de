// Programs: ordered launches over slots, as plain values. Nothing here knows a device.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "tensor/activation.h"
#include "tensor/dtype.h"
#include "trace/counters.h"

namespace tyto {

// What changes from call to call of one loaded program.

// A state of the recurrent layers, by its place in their slots.
inline constexpr uint32_t kNoState = UINT32_MAX;

// A state in the middle of a segment that shall be there after the call.
struct KeptState {
  uint32_t rows = 0;  // that have been computed by then, fewer than the segment's
  uint32_t state = kNoState;
  bool operator==(const KeptState&) const = default;
};

// Rows of one sequence in a call.
struct Segment {
  uint32_t first_row = 0;  // in the activation slots; of gather_rows: where the rows to keep begin
  uint32_t rows = 1;
  uint32_t position = 0;  // the first row's in its sequence
  // Where the sequence's KV cache lies: page i holds its positions from i * LaunchShape::page on.
  // Unused where a cache is one piece. What it refers to stays as it is until wait() returns.
  std::span<const uint32_t> pages = {};
  // The same for layers that attend to a window, where those have pages of their own. What stands
  // in front of all that the rows attend to is no page.
  std::span<const uint32_t> window_pages = {};
  // The state in front of the first row, kNoState: there is none before it, all its values are
  // zero; and where the one behind the last row is written, which may be the same place. States
  // that others read in this call are written by none. The order of `kept` is that of the rows.
  uint32_t state_from = kNoState;
  uint32_t state_to = kNoState;
  std::span<const KeptState> kept = {};

  // For a launch with such a window; 0: with none.
  std::span<const uint32_t> pages_of(uint32_t window) const {
    return window == 0 || window_pages.empty() ? pages : window_pages;
  }
  uint32_t end() const { return position + rows; }  // positions in the cache after the call
};

// Rows of one sequence or of several. Only rope_table, kv_append, attention, gather_rows and what
// has a state tell sequences apart; every other kernel sees `rows` rows.
struct Call {
  uint32_t rows = 1;                    // all segments', at most the activation slots' rows
  Segment only = {};                    // the segment of a call with one
  std::span<const Segment> batch = {};  // a call's with several; valid until wait() returns

  std::span<const Segment> segments() const {
    return batch.empty() ? std::span<const Segment>(&only, 1) : batch;
  }
};

// A call of one sequence, in a cache that is one piece or in `pages`.
inline Call call_of(uint32_t rows, uint32_t position = 0, uint32_t first_row = 0,
                    std::span<const uint32_t> pages = {}) {
  return {.rows = rows, .only = {first_row, rows, position, pages, {}, kNoState, kNoState, {}}};
}

// `segments` outlive the call.
inline Call call_of(std::span<const Segment> segments) {
  if (segments.size() == 1) return {.rows = segments[0].rows, .only = segments[0]};
  Call call{.rows = 0, .batch = segments};
  for (const Segment& segment : segments) call.rows += segment.rows;
  return call;
}

// Who moves a slot's bytes, and when.
enum class SlotKind : uint8_t {
  weight,   // laid out once, at load
  kv,       // resident on the device between calls
  scratch,  // never leaves the device
  input,    // host to device before each call
  output,   // device to host after each call
  inout,    // both
  state,    // as kv: what a recurrent layer keeps, f32 [states][LaunchShape::state_rows][cols]
};

enum class Facet : uint8_t {
  main,
  bias,
  norm,    // each head's own
  lora_a,  // adapters add b (a x) to a projection of x
  lora_b,
  lora_sum,  // the result; its slot holds what the projection's own matrix gives
};
constexpr Facet kLastFacet = Facet::lora_sum;

// Which part of the forward pass a slot holds or a launch computes, and which facet of this part.
// With the layer it is what devices, costs and reports go by; names are for people.
struct Role {
  enum class Part : uint8_t {
    none,
    tokens,
    embedding,
    frequencies,
    rope_table,
    window_frequencies,  // for windowed layers, where their rope is another
    window_rope_table,
    x,  // the residual stream
    embed_scale,
    normed,
    attn_norm,
    q,
    k,
    v,
    q_rope,
    k_rope,
    q_scale,
    kv_append,
    k_cache,
    v_cache,
    sinks,
    attention,
    attn_gate,
    attn_gated,  // what of attention the gate lets through
    // A short convolution in the place of attention: the gate before it, its input, the gate behind
    // it, what the first gate lets through, the convolution, its state, what the second lets
    // through.
    conv_gate,
    conv_x,
    conv_out_gate,
    conv_in,
    conv,
    conv_state,
    conv_gated,
    // A recurrence in the place of attention: what goes through a convolution into it, the gate
    // behind it, what says how fast its state fades and how strongly a token is written.
    recur_in,
    recur_gate,
    recur_both,  // strength and time, one key head's after the other's
    recur_time,
    recur_rates,
    recur_strength,
    recur_skip,
    recur_state,
    recur,
    recur_gated,
    q_and_gate,  // attention's, one head after the other
    o,
    attn_post_norm,
    attn_scale,  // scales what attention adds to the residual stream
    attn_residual,
    ffn_norm,
    gate,
    up,
    swiglu,
    down,
    router,
    expert_ids,
    expert_weights,
    expert_gate,
    expert_up,
    expert_swiglu,
    expert_down,
    expert_mix,
    // The expert that every token takes, and how much of it.
    shared_gate,
    shared_up,
    shared_swiglu,
    shared_down,
    shared_share,
    shared_mix,
    ffn_post_norm,
    ffn_scale,
    ffn_residual,
    delta,  // what is added to the residual stream
    head_rows,
    final_norm,
    head_normed,
    logit_scale,
    lm_head,
    logits,
    logit_cap,
    candidates,  // the best of a row of logits
  };
  using enum Part;

  Part part = Part::none;
  Facet facet = Facet::main;

  constexpr Role() = default;
  constexpr Role(Part which) : part(which) {}

  friend constexpr Role operator|(Role role, Facet facet) {
    role.facet = facet;
    return role;
  }
  friend constexpr auto operator<=>(Role, Role) = default;
};
constexpr Role::Part kLastPart = Role::candidates;
std::string name(Role role);  // "q_bias" for Role::q | Facet::bias
// The role with this name; none when no role has it.
Role role_named(std::string_view name);

// Neighbouring launches of one layer that --fusion block makes one dispatch of, on a device that
// has no blocks of its own (DispatchBlock).
enum class Block : uint8_t {
  none,
  embed,
  rms_qkv_rope,
  attention,
  prompt_attention,
  o_ffn,
  final_norm,
  lm_head,
  recurrence,  // from the norm on, what a layer with a state has in the place of attention
};
constexpr Block kLastBlock = Block::recurrence;
std::string_view name(Block block);

struct Slot {
  std::string name;  // for people
  SlotKind kind = SlotKind::scratch;
  DType dtype = DType::f32;
  uint64_t rows = 0;  // activations: the most rows one call may carry
  uint64_t cols = 0;
  Role role = Role::none;
  uint16_t layer = kNoLayer;

  uint64_t bytes() const { return rows * row_bytes(dtype, cols); }
};

// The operations of a Llama-family forward pass. program/kernels.h says what each one means.
enum class Kernel : uint8_t {
  embed,
  rope_table,
  rmsnorm,
  matmul,
  rope,
  kv_append,
  attention,
  add,
  swiglu,
  gather_rows,
  cast,
  prompt_attention,
  matmul_i8,
  matmul_q8,
  top_k,
  scale,
  soft_cap,
  layernorm,
  route,
  expert_matmul,
  mix_experts,
  causal_conv,
  split,
  add_gated,
  delta_rule,
  mamba2,
};
constexpr Kernel kLastKernel = Kernel::mamba2;

struct Arg {
  uint16_t slot = 0;
  bool reads = true;
  bool writes = false;
};

// Sizes a kernel needs beyond what its slots say.
struct LaunchShape {
  uint32_t heads = 0;     // rows of `head_dim` per token: rmsnorm, rope, attention
  uint32_t kv_heads = 0;  // attention, kv_append
  uint32_t head_dim = 0;
  uint32_t context = 0;  // positions that one sequence's cache may hold
  // Positions of a page: KV slots lie as [pages][kv_heads][page][head_dim]. 0: they hold one
  // sequence, as [kv_heads / kv_group][context][kv_group][head_dim].
  uint32_t page = 0;
  uint32_t kv_group = 1;
  bool rope_pairs = false;  // RopeLayout::pairs
  float eps = 0;            // rmsnorm, layernorm
  bool bf16_sums = false;   // rmsnorm: squares are added up in bf16, as one NPU kernel does
  // scale; rope_table: of cosines and sines; soft_cap: the cap; route: of the weights
  float factor = 1;
  uint32_t rotated = 0;  // rope: values of a head that are, the first; 0: all
  // attention, kv_append: positions that a query attends to, its own included; 0: all before it
  uint32_t window = 0;
  float score_cap = 0;  // attention: scores become cap * tanh(score / cap); 0: they stay
  Activation activation = Activation::silu;  // swiglu
  uint32_t experts = 0;             // expert_matmul: whose rows follow each other in the weight
  bool weighs_chosen_alone = true;  // route: as in Config
  bool sigmoid_scores = false;      // route: scores become their sigmoid, not their softmax
  // route: experts come in groups, and a token takes those of `groups_used` of them alone. 0: they
  // do not
  uint32_t groups = 0;
  uint32_t groups_used = 0;
  uint32_t state_rows = 0;  // what has a state: rows of its slot that one state takes
  // delta_rule: head h reads the key of h % kv_heads, where it otherwise is h / (heads / kv_heads)
  bool tiled_heads = false;
  float least_time = 0;  // mamba2: what a token's time is bounded to
  float most_time = std::numeric_limits<float>::infinity();
};

struct Launch {
  Kernel kernel = Kernel::add;
  std::string name;  // for people
  std::vector<Arg> args;
  LaunchShape shape = {};
  Role role = Role::none;
  uint16_t layer = kNoLayer;
  Block block = Block::none;
  uint8_t op_group = 0;  // not 0: one operator at --fusion op with its neighbours of equal number
};

struct Program {
  std::string name;  // for people
  std::vector<Slot> slots;
  std::vector<Launch> launches;
  // What the device that takes these launches together calls them; empty: they have no such name.
  std::string dispatch = {};
};

// "L03.q", or "q" outside the layers.
std::string layer_name(std::string_view what, uint16_t layer);

// Identity of a program: everything but names, layers and who moves an activation's bytes, so that
// the layers of a model share one image (the first one's input comes from the host, the others' do
// not).
Hash128 program_hash(const Program& program);

}  // namespace tyto
