#include "llama/forward_program.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.h"
#include "program/top_k.h"

namespace tyto {
namespace {

class Builder {
 public:
  Builder(const Config& config, const ForwardShape& shape) : config_(config), shape_(shape) {}

  uint16_t activation(Role role, uint64_t width, SlotKind kind = SlotKind::scratch) {
    return slot(role, kNoLayer, kind, shape_.activations, shape_.rows, width);
  }

  uint16_t body_output() {
    const uint32_t rows = std::max(shape_.rows, shape_.body_rows);
    return slot(Role::x, kNoLayer, SlotKind::scratch, shape_.activations, rows, config_.emb);
  }

  uint16_t token_ids() {
    return slot(Role::tokens, kNoLayer, SlotKind::input, DType::i32, shape_.rows, 1);
  }

  uint16_t candidates() {
    return slot(Role::candidates, kNoLayer, SlotKind::output, DType::i32, shape_.rows,
                TopKRow::words_for(shape_.candidates));
  }

  uint16_t weight(Role role, const TensorView& view) {
    return slot(role, layer_, SlotKind::weight, view.dtype, view.rows, view.cols, view);
  }

  uint16_t cache(Role role) {
    const bool has_own = config_.is_windowed(layer_) && shape_.window_pages > 0;
    const uint64_t pages = has_own ? shape_.window_pages : shape_.kv_pages;
    const uint64_t positions = shape_.kv_page == 0 ? shape_.context : shape_.kv_page * pages;
    return slot(role, layer_, SlotKind::kv, shape_.kv_type, config_.kv_heads * positions,
                config_.head_dim);
  }

  // The state of the layer at hand that belongs to a role.
  uint16_t state(Role role) {
    const LayerState state = layer_state(role);
    return slot(role, layer_, SlotKind::state, DType::f32, uint64_t{state.rows} * shape_.states,
                state.cols);
  }
  LayerState layer_state(Role role) const {
    const std::vector<LayerState> states = layer_states(config_, layer_);
    const auto found = std::ranges::find(states, role, &LayerState::role);
    TYTO_ASSERT(found != states.end());
    return *found;
  }

  uint16_t expert_ids() {
    return slot(Role::expert_ids, kNoLayer, SlotKind::scratch, DType::i32, shape_.rows,
                config_.experts_used);
  }

  // In f32 wherever they are made: a device that routes has the host's arithmetic.
  uint16_t expert_weights() {
    return slot(Role::expert_weights, kNoLayer, SlotKind::scratch, DType::f32, shape_.rows,
                config_.experts_used);
  }

  // Arguments in the kernel's order: those it reads, those it writes, then an optional one it
  // reads.
  void launch(Kernel kernel, Role role, std::vector<uint16_t> reads, std::vector<uint16_t> writes,
              std::vector<uint16_t> late_reads = {}) {
    Launch launch{.kernel = kernel, .name = layer_name(name(role), layer_), .args = {}};
    launch.role = role;
    launch.layer = layer_;
    launch.block = block_;
    launch.op_group = op_group_;
    for (uint16_t slot : reads) launch.args.push_back({slot, true, false});
    for (uint16_t slot : writes) launch.args.push_back({slot, false, true});
    for (uint16_t slot : late_reads) launch.args.push_back({slot, true, false});
    launch.shape.head_dim = config_.head_dim;
    launch.shape.kv_heads = config_.kv_heads;
    launch.shape.context = shape_.context;
    launch.shape.page = shape_.kv_page;
    launch.shape.kv_group = shape_.kv_group;
    launch.shape.rope_pairs = config_.rope.layout == RopeLayout::pairs && rotates();
    launch.shape.eps = config_.norm_eps;
    if (has_window()) launch.shape.window = window_of(kernel);
    result_.program.launches.push_back(std::move(launch));
  }

  // For kernels that change their first argument in place.
  void launch_in_place(Kernel kernel, Role role, uint16_t target, uint16_t other) {
    launch(kernel, role, {target, other}, {});
    last().args[0].writes = true;
  }

  // For kernels with a state, which they read and write; `bias` may be none.
  void launch_with_state(Kernel kernel, Role role, std::vector<uint16_t> reads, Role state,
                         uint16_t y, std::vector<uint16_t> late_reads = {}) {
    const uint16_t slot = this->state(state);
    launch(kernel, role, std::move(reads), {slot, y}, std::move(late_reads));
    for (Arg& arg : last().args) arg.reads |= arg.slot == slot;
    last().shape.state_rows = layer_state(state).rows;
  }

  Launch& last() { return result_.program.launches.back(); }
  void enter_layer(uint32_t layer) { layer_ = static_cast<uint16_t>(layer); }
  void leave_layers() { layer_ = kNoLayer; }
  void enter_block(Block block) { block_ = block; }
  void enter_op(uint8_t group) { op_group_ = group; }
  void leave_op() { op_group_ = 0; }
  // What a layer does not rotate has no order of pairs or halves.
  bool rotates() const { return layer_ == kNoLayer || config_.rotates(layer_); }
  // Where a cache can hold no more than the window, the layer is like any other.
  bool has_window() const {
    return layer_ != kNoLayer && config_.is_windowed(layer_) && config_.window < shape_.context;
  }
  bool from_start() const { return shape_.from_start; }
  Kernel norm_kernel() const { return config_.layer_norm ? Kernel::layernorm : Kernel::rmsnorm; }
  bool has_candidates() const { return shape_.candidates > 0; }

  ForwardProgram take(const std::string& name) {
    result_.program.name = name;
    return std::move(result_);
  }

 private:
  uint16_t slot(Role role, uint16_t layer, SlotKind kind, DType type, uint64_t rows, uint64_t cols,
                const TensorView& view = {}) {
    std::vector<Slot>& slots = result_.program.slots;
    const auto [entry, is_new] =
        known_.try_emplace({role, layer, kind == SlotKind::weight}, slots.size());
    if (is_new) {
      TYTO_ASSERT(slots.size() < UINT16_MAX);
      slots.push_back({layer_name(name(role), layer), kind, type, rows, cols, role, layer});
      result_.weights.push_back(view);
    }
    return static_cast<uint16_t>(entry->second);
  }

  uint32_t window_of(Kernel kernel) const {
    const bool attends = kernel == Kernel::attention || kernel == Kernel::prompt_attention;
    return attends || kernel == Kernel::kv_append ? config_.window : 0;
  }

  const Config& config_;
  const ForwardShape& shape_;
  ForwardProgram result_;
  std::map<std::tuple<Role, uint16_t, bool>, size_t> known_;  // role, layer, is a weight
  uint16_t layer_ = kNoLayer;
  Block block_ = Block::none;
  uint8_t op_group_ = 0;
};

// IRON's feed-forward is one operator, and its dispatches are what op-level counts are compared
// with.
constexpr uint8_t kFeedForwardGroup = 1;

const TensorView kNoTensor = {};
const LowRank kNoLora = {};

struct Projection {
  Role role;
  uint16_t x;
  const TensorView& weight;
  const LowRank& lora;
  uint16_t y;
  const TensorView& bias = kNoTensor;
  Role weight_role = role;
};

// y = base + b (a x). The base has a slot of its own, for the reason that add_scale gives.
void add_lora(Builder& build, const Projection& each, uint16_t base) {
  const Role a = each.role | Facet::lora_a, b = each.role | Facet::lora_b;
  const uint16_t inner = build.activation(a, each.lora.a.rows);
  const uint16_t more = build.activation(b, each.lora.b.rows);
  build.launch(Kernel::matmul, a, {each.x, build.weight(a, each.lora.a)}, {inner});
  build.launch(Kernel::matmul, b, {inner, build.weight(b, each.lora.b)}, {more});
  build.launch(Kernel::add, each.role | Facet::lora_sum, {base, more}, {each.y});
}

// Projections of one input stand side by side, in front of what adapters add to any of them:
// devices take such neighbours together.
void add_projections(Builder& build, std::initializer_list<Projection> projections) {
  const auto base_of = [&](const Projection& each) {
    return each.lora.empty() ? each.y
                             : build.activation(each.role | Facet::lora_sum, each.weight.rows);
  };
  for (const Projection& each : projections) {
    std::vector<uint16_t> biases;
    if (!each.bias.empty()) biases.push_back(build.weight(each.role | Facet::bias, each.bias));
    build.launch(Kernel::matmul, each.role, {each.x, build.weight(each.weight_role, each.weight)},
                 {base_of(each)}, biases);
  }
  for (const Projection& each : projections)
    if (!each.lora.empty()) add_lora(build, each, base_of(each));
}

void add_head_norm(Builder& build, Role role, uint32_t heads, uint16_t x, const TensorView& norm) {
  if (norm.empty()) return;
  build.launch(Kernel::rmsnorm, role, {x, build.weight(role, norm)}, {x});
  build.last().shape.heads = heads;
}

// For slots that no device but the one which does this writes before they are read.
void scale_in_place(Builder& build, Role role, uint16_t x, float factor) {
  if (factor == 1) return;
  build.launch(Kernel::scale, role, {x}, {});
  build.last().args[0].writes = true;
  build.last().shape.factor = factor;
}

// Where the result is; that of a factor of one is x. It has a slot of its own: what an NPU has
// written, and writes again in the next layer, the host must not change in place, or its cache
// lines go over the device's bytes.
uint16_t add_scale(Builder& build, Role role, uint16_t x, uint32_t width, float factor) {
  if (factor == 1) return x;
  const uint16_t y = build.activation(role, width);
  build.launch(Kernel::scale, role, {x}, {y});
  build.last().shape.factor = factor;
  return y;
}

// Norms the rows of x into the slot of role `result`. Without a weight there is no norm, and the
// result is x itself.
uint16_t add_norm(Builder& build, Role role, const TensorView& weight, uint16_t x, Role result) {
  if (weight.empty()) return x;
  const uint16_t y = build.activation(result, weight.cols);
  build.launch(build.norm_kernel(), role, {x, build.weight(role, weight)}, {y});
  return y;
}

// What attention or feed-forward gave, as the family adds it to the residual stream.
struct Addition {
  Role norm, scale, residual;
};

void add_to_residual(Builder& build, const Config& config, const Addition& roles, uint16_t delta,
                     const TensorView& norm) {
  delta = add_norm(build, roles.norm, norm, delta, roles.norm);
  delta = add_scale(build, roles.scale, delta, config.emb, config.residual_scale);
  build.launch_in_place(Kernel::add, roles.residual, build.activation(Role::x, config.emb), delta);
}

void add_rope(Builder& build, Role role, uint32_t heads, uint16_t x, uint16_t rope_table,
              uint32_t rotated) {
  if (!build.rotates()) return;
  build.launch_in_place(Kernel::rope, role, x, rope_table);
  build.last().shape.heads = heads;
  build.last().shape.rotated = rotated;
}

// Queries against keys, of the call's own rows or of the cache.
void add_mixing(Builder& build, const Config& config, const LayerWeights& weights,
                std::vector<uint16_t> reads, uint16_t mixed) {
  std::vector<uint16_t> sinks;
  if (!weights.sinks.empty()) sinks.push_back(build.weight(Role::sinks, weights.sinks));
  if (build.from_start()) build.enter_block(Block::prompt_attention);
  build.launch(build.from_start() ? Kernel::prompt_attention : Kernel::attention, Role::attention,
               std::move(reads), {mixed}, sinks);
  build.last().shape.heads = config.heads;
  build.last().shape.score_cap = config.score_cap;
}

// Where the output's projection finds what attention gave. What a gate lets through has a slot of
// its own, for the reason that add_scale gives.
uint16_t attention_output(Builder& build, const Config& config, uint32_t layer) {
  if (config.kind_of(layer) == LayerKind::short_conv)
    return build.activation(Role::conv_gated, config.emb);
  if (config.kind_of(layer) == LayerKind::delta_rule)
    return build.activation(Role::recur_gated, config.recurrent.values());
  if (config.kind_of(layer) == LayerKind::mamba2)
    return build.activation(Role::recur | Facet::norm, config.recurrent.values());
  return build.activation(config.attention_gate ? Role::attn_gated : Role::attention,
                          config.q_width());
}

void add_attention_gate(Builder& build, const Config& config, uint16_t gate, uint16_t mixed) {
  build.launch(Kernel::swiglu, Role::attn_gated, {gate, mixed},
               {build.activation(Role::attn_gated, config.q_width())});
  build.last().shape.activation = Activation::sigmoid;
}

// The slot that holds the rotations of a layer.
uint16_t rope_table(Builder& build, const Config& config, uint32_t layer) {
  const bool is_own = config.window_theta != 0 && config.is_windowed(layer);
  return build.activation(is_own ? Role::window_rope_table : Role::rope_table, config.rope_width());
}

void add_attention(Builder& build, const Config& config, uint32_t layer,
                   const LayerWeights& weights) {
  const uint16_t x = build.activation(Role::x, config.emb);
  const uint16_t q = build.activation(Role::q, config.q_width());
  const uint16_t k = build.activation(Role::k, config.kv_width());
  const uint16_t v = build.activation(Role::v, config.kv_width());
  const uint16_t mixed = build.activation(Role::attention, config.q_width());
  const uint16_t turns = rope_table(build, config, layer);
  const uint16_t k_cache = build.cache(Role::k_cache);
  const uint16_t v_cache = build.cache(Role::v_cache);

  build.enter_block(Block::rms_qkv_rope);
  const uint16_t in = add_norm(build, Role::attn_norm, weights.attn_norm, x, Role::normed);
  const uint16_t projected =
      config.attention_gate ? build.activation(Role::q_and_gate, config.q_rows()) : q;
  add_projections(build, {{Role::q, in, weights.q, weights.q_lora, projected, weights.q_bias},
                          {Role::k, in, weights.k, weights.k_lora, k, weights.k_bias},
                          {Role::v, in, weights.v, weights.v_lora, v, weights.v_bias}});
  if (config.attention_gate) {
    build.launch(Kernel::split, Role::attn_gate, {projected},
                 {q, build.activation(Role::attn_gate, config.q_width())});
    build.last().shape.heads = config.heads;
  }
  add_head_norm(build, Role::q | Facet::norm, config.heads, q, weights.q_norm);
  add_rope(build, Role::q_rope, config.heads, q, turns, config.rope.rotated);
  add_head_norm(build, Role::k | Facet::norm, config.kv_heads, k, weights.k_norm);
  add_rope(build, Role::k_rope, config.kv_heads, k, turns, config.rope.rotated);
  const uint16_t queries =
      add_scale(build, Role::q_scale, q, config.q_width(), config.query_scale());
  build.enter_block(Block::attention);
  build.launch(Kernel::kv_append, Role::kv_append, {k, v}, {k_cache, v_cache});
  if (build.from_start())
    add_mixing(build, config, weights, {queries, k, v}, mixed);
  else
    add_mixing(build, config, weights, {queries, k_cache, v_cache}, mixed);
  if (config.attention_gate)
    add_attention_gate(build, config, build.activation(Role::attn_gate, config.q_width()), mixed);
}

void add_product(Builder& build, Role role, uint16_t gate, uint16_t x, uint16_t y) {
  build.launch(Kernel::swiglu, role, {gate, x}, {y});
  build.last().shape.activation = Activation::none;
}

// LFM2: a convolution with a gate before it and one behind it.
void add_short_conv(Builder& build, const Config& config, uint32_t layer,
                    const LayerWeights& weights) {
  const uint16_t x = build.activation(Role::x, config.emb);
  const uint16_t gate = build.activation(Role::conv_gate, config.emb);
  const uint16_t inner = build.activation(Role::conv_x, config.emb);
  const uint16_t out_gate = build.activation(Role::conv_out_gate, config.emb);
  const uint16_t let_in = build.activation(Role::conv_in, config.emb);
  const uint16_t mixed = build.activation(Role::conv, config.emb);

  build.enter_block(Block::recurrence);
  const uint16_t in = add_norm(build, Role::attn_norm, weights.attn_norm, x, Role::normed);
  add_projections(build, {{Role::conv_gate, in, weights.conv_gate, weights.conv_gate_lora, gate},
                          {Role::conv_x, in, weights.conv_x, weights.conv_x_lora, inner},
                          {Role::conv_out_gate, in, weights.conv_out_gate,
                           weights.conv_out_gate_lora, out_gate}});
  add_product(build, Role::conv_in, gate, inner, let_in);
  build.launch_with_state(Kernel::causal_conv, Role::conv,
                          {let_in, build.weight(Role::conv, weights.conv)}, Role::conv_state,
                          mixed);
  build.last().shape.activation = Activation::none;
  add_product(build, Role::conv_gated, out_gate, mixed, attention_output(build, config, layer));
}

// Where results are, and the biases that some have.
struct ExpertMatmul {
  Role role;
  const TensorView& weight;
  const TensorView& bias;
};

void add_expert_matmul(Builder& build, const Config& config, const ExpertMatmul& product,
                       uint16_t x, uint16_t y) {
  std::vector<uint16_t> biases;
  if (!product.bias.empty())
    biases.push_back(build.weight(product.role | Facet::bias, product.bias));
  build.launch(Kernel::expert_matmul, product.role,
               {x, build.weight(product.role, product.weight), build.expert_ids()}, {y}, biases);
  build.last().shape.experts = config.experts;
}

// The experts that the router chooses for a token, added up by its weights. The sum has a slot of
// its own: the host makes it, and `delta` may be an NPU's.
uint16_t add_experts(Builder& build, const Config& config, const LayerWeights& weights,
                     uint16_t in) {
  const uint16_t sum = build.activation(Role::expert_mix, config.emb);
  const uint32_t hidden = config.experts_used * config.expert_hidden;
  const uint16_t gate = build.activation(Role::expert_gate, hidden);
  const uint16_t up = build.activation(Role::expert_up, hidden);
  const uint16_t down = build.activation(Role::expert_down, config.experts_used * config.emb);
  std::vector<uint16_t> biases;
  if (!weights.router_bias.empty())
    biases.push_back(build.weight(Role::router | Facet::bias, weights.router_bias));
  build.launch(Kernel::route, Role::router, {in, build.weight(Role::router, weights.router)},
               {build.expert_ids(), build.expert_weights()}, biases);
  LaunchShape& routes = build.last().shape;
  routes.weighs_chosen_alone = config.weighs_chosen_alone;
  routes.sigmoid_scores = config.sigmoid_routing;
  routes.factor = config.expert_scale;
  add_expert_matmul(build, config, {Role::expert_gate, weights.gate, weights.expert_gate_bias}, in,
                    gate);
  add_expert_matmul(build, config, {Role::expert_up, weights.up, weights.expert_up_bias}, in, up);
  build.launch(Kernel::swiglu, Role::expert_swiglu, {gate, up}, {gate});
  build.last().shape.activation = config.activation;
  add_expert_matmul(build, config, {Role::expert_down, weights.down, weights.expert_down_bias},
                    gate, down);
  build.launch(Kernel::mix_experts, Role::expert_mix, {down, build.expert_weights()}, {sum});
  return sum;
}

uint16_t add_gated(Builder& build, const Config& config, const LayerWeights& weights, uint16_t in) {
  const uint16_t delta = build.activation(Role::delta, config.emb);
  const uint16_t gate = build.activation(Role::gate, config.hidden);
  const uint16_t up = build.activation(Role::up, config.hidden);
  add_projections(build, {{Role::gate, in, weights.gate, weights.gate_lora, gate},
                          {Role::up, in, weights.up, weights.up_lora, up}});
  build.launch(Kernel::swiglu, Role::swiglu, {gate, up}, {gate});
  build.last().shape.activation = config.activation;
  add_projections(build, {{Role::down, gate, weights.down, weights.down_lora, delta}});
  return delta;
}

// Qwen3.5: a convolution, the gated delta rule, and a norm of each head behind a gate.
void add_delta_rule(Builder& build, const Config& config, uint32_t layer,
                    const LayerWeights& weights) {
  const RecurrentHeads& shape = config.recurrent;
  const uint16_t x = build.activation(Role::x, config.emb);
  const uint16_t inner = build.activation(Role::recur_in, shape.channels());
  const uint16_t gate = build.activation(Role::recur_gate, shape.values());
  const uint16_t time = build.activation(Role::recur_time, shape.heads);
  const uint16_t strength = build.activation(Role::recur_strength, shape.heads);
  const uint16_t convolved = build.activation(Role::conv, shape.channels());
  const uint16_t mixed = build.activation(Role::recur, shape.values());

  build.enter_block(Block::recurrence);
  const uint16_t in = add_norm(build, Role::attn_norm, weights.attn_norm, x, Role::normed);
  add_projections(build, {{Role::recur_in, in, weights.recur_in, kNoLora, inner},
                          {Role::recur_gate, in, weights.recur_gate, kNoLora, gate}});
  if (shape.is_joint) {
    const uint16_t both = build.activation(Role::recur_both, uint64_t{2} * shape.heads);
    add_projections(build, {{Role::recur_both, in, weights.recur_both, kNoLora, both}});
    build.launch(Kernel::split, Role::recur_time, {both}, {strength, time});
    build.last().shape.heads = shape.key_heads;
  } else {
    add_projections(build, {{Role::recur_time, in, weights.recur_time, kNoLora, time},
                            {Role::recur_strength, in, weights.recur_strength, kNoLora, strength}});
  }
  build.launch_with_state(Kernel::causal_conv, Role::conv,
                          {inner, build.weight(Role::conv, weights.conv)}, Role::conv_state,
                          convolved);
  build.launch_with_state(Kernel::delta_rule, Role::recur,
                          {convolved, time, strength,
                           build.weight(Role::recur_time | Facet::bias, weights.recur_time_bias),
                           build.weight(Role::recur_rates, weights.recur_rates)},
                          Role::recur_state, mixed);
  LaunchShape& launch = build.last().shape;
  launch.heads = shape.heads;
  launch.kv_heads = shape.key_heads;
  launch.tiled_heads = shape.is_tiled;
  launch.eps = 1e-6f;  // for the lengths of keys and queries
  const uint16_t normed = build.activation(Role::recur | Facet::norm, shape.values());
  build.launch(Kernel::rmsnorm, Role::recur | Facet::norm,
               {mixed, build.weight(Role::recur | Facet::norm, weights.recur_norm)}, {normed});
  build.last().shape.heads = shape.heads;
  build.launch(Kernel::swiglu, Role::recur_gated, {gate, normed},
               {attention_output(build, config, layer)});
}

// Granite 4 and Nemotron: a convolution, the recurrence of Mamba-2, a gate and a norm behind it.
void add_mamba2(Builder& build, const Config& config, uint32_t layer, const LayerWeights& weights) {
  const RecurrentHeads& shape = config.recurrent;
  const uint16_t x = build.activation(Role::x, config.emb);
  const uint16_t inner = build.activation(Role::recur_in, shape.channels());
  const uint16_t gate = build.activation(Role::recur_gate, shape.values());
  const uint16_t time = build.activation(Role::recur_time, shape.heads);
  const uint16_t convolved = build.activation(Role::conv, shape.channels());
  const uint16_t mixed = build.activation(Role::recur, shape.values());
  const uint16_t let_out = build.activation(Role::recur_gated, shape.values());

  build.enter_block(Block::recurrence);
  const uint16_t in = add_norm(build, Role::attn_norm, weights.attn_norm, x, Role::normed);
  add_projections(build, {{Role::recur_gate, in, weights.recur_gate, kNoLora, gate},
                          {Role::recur_in, in, weights.recur_in, kNoLora, inner},
                          {Role::recur_time, in, weights.recur_time, kNoLora, time}});
  std::vector<uint16_t> biases;
  if (!weights.conv_bias.empty())
    biases.push_back(build.weight(Role::conv | Facet::bias, weights.conv_bias));
  build.launch_with_state(Kernel::causal_conv, Role::conv,
                          {inner, build.weight(Role::conv, weights.conv)}, Role::conv_state,
                          convolved, biases);
  build.launch_with_state(
      Kernel::mamba2, Role::recur,
      {convolved, time, build.weight(Role::recur_time | Facet::bias, weights.recur_time_bias),
       build.weight(Role::recur_rates, weights.recur_rates),
       build.weight(Role::recur_skip, weights.recur_skip)},
      Role::recur_state, mixed);
  LaunchShape& launch = build.last().shape;
  launch.heads = shape.heads;
  launch.kv_heads = shape.key_heads;
  launch.least_time = config.least_time;
  launch.most_time = config.most_time;
  build.launch(Kernel::swiglu, Role::recur_gated, {gate, mixed}, {let_out});
  build.launch(Kernel::rmsnorm, Role::recur | Facet::norm,
               {let_out, build.weight(Role::recur | Facet::norm, weights.recur_norm)},
               {attention_output(build, config, layer)});
  build.last().shape.groups = config.recurrent_norms;
}

// What the expert of every token adds to what the chosen ones give.
void add_shared_expert(Builder& build, const Config& config, const LayerWeights& weights,
                       uint16_t in, uint16_t sum) {
  const uint16_t gate = build.activation(Role::shared_gate, config.shared_hidden);
  const uint16_t up = build.activation(Role::shared_up, config.shared_hidden);
  const uint16_t down = build.activation(Role::shared_down, config.emb);
  add_projections(build, {{Role::shared_gate, in, weights.shared_gate, kNoLora, gate},
                          {Role::shared_up, in, weights.shared_up, kNoLora, up}});
  build.launch(Kernel::swiglu, Role::shared_swiglu, {gate, up}, {gate});
  build.last().shape.activation = config.activation;
  add_projections(build, {{Role::shared_down, gate, weights.shared_down, kNoLora, down}});
  if (!config.shared_gate) return build.launch_in_place(Kernel::add, Role::shared_mix, sum, down);
  const uint16_t share = build.activation(Role::shared_share, 1);
  add_projections(build, {{Role::shared_share, in, weights.shared_share, kNoLora, share}});
  build.launch(Kernel::add_gated, Role::shared_mix, {sum, down, share}, {});
  build.last().args[0].writes = true;
}

void add_feed_forward(Builder& build, const Config& config, uint32_t layer,
                      const LayerWeights& weights) {
  const uint16_t x = build.activation(Role::x, config.emb);
  const uint16_t mixed = attention_output(build, config, layer);
  const uint16_t delta = build.activation(Role::delta, config.emb);

  build.enter_block(Block::o_ffn);
  add_projections(build, {{Role::o, mixed, weights.o, weights.o_lora, delta, weights.o_bias}});
  add_to_residual(build, config, {Role::attn_post_norm, Role::attn_scale, Role::attn_residual},
                  delta, weights.attn_post_norm);
  // Beside attention it reads what attention read. What the host's experts read must not be what an
  // NPU's attention norm writes (add_scale).
  const bool has_experts = config.has_experts_in(layer);
  const Role read = has_experts ? Role::ffn_norm : Role::normed;
  const uint16_t in = config.parallel_residual
                          ? build.activation(Role::normed, config.emb)
                          : add_norm(build, Role::ffn_norm, weights.ffn_norm, x, read);
  build.enter_op(kFeedForwardGroup);
  const uint16_t added =
      has_experts ? add_experts(build, config, weights, in) : add_gated(build, config, weights, in);
  if (has_experts && config.shared_hidden != 0)
    add_shared_expert(build, config, weights, in, added);
  build.leave_op();
  add_to_residual(build, config, {Role::ffn_post_norm, Role::ffn_scale, Role::ffn_residual}, added,
                  weights.ffn_post_norm);
}

void add_rope_table(Builder& build, const Config& config, Role frequencies, Role table,
                    std::span<const float> values, float factor) {
  const TensorView view{DType::f32, 1, values.size(), std::as_bytes(values)};
  build.launch(Kernel::rope_table, table, {build.weight(frequencies, view)},
               {build.activation(table, config.rope_width())});
  build.last().shape.factor = factor;
}

void add_body(Builder& build, const Model& model, std::span<const float> frequencies) {
  const Config& config = model.config;
  const size_t pairs = config.rope_width() / 2;
  build.enter_block(Block::embed);
  build.launch(Kernel::embed, Role::embedding,
               {build.token_ids(), build.weight(Role::embedding, model.weights.embedding)},
               {build.activation(Role::x, config.emb)});
  scale_in_place(build, Role::embed_scale, build.activation(Role::x, config.emb),
                 config.embedding_scale);
  add_rope_table(build, config, Role::frequencies, Role::rope_table, frequencies.first(pairs),
                 config.rope.attention_factor);
  if (frequencies.size() > pairs)
    add_rope_table(build, config, Role::window_frequencies, Role::window_rope_table,
                   frequencies.subspan(pairs), 1);
  for (uint32_t layer = 0; layer < config.layers; ++layer) {
    build.enter_layer(layer);
    const LayerWeights& weights = model.weights.layers[layer];
    switch (config.kind_of(layer)) {
      case LayerKind::attention:
        add_attention(build, config, layer, weights);
        break;
      case LayerKind::short_conv:
        add_short_conv(build, config, layer, weights);
        break;
      case LayerKind::delta_rule:
        add_delta_rule(build, config, layer, weights);
        break;
      case LayerKind::mamba2:
        add_mamba2(build, config, layer, weights);
        break;
    }
    add_feed_forward(build, config, layer, weights);
  }
  build.leave_layers();
}

// The rows that go to the head, normed.
uint16_t add_final_norm(Builder& build, const Model& model, SlotKind kind) {
  const Weights& weights = model.weights;
  const uint16_t rows = build.activation(Role::head_rows, model.config.emb);
  build.enter_block(Block::final_norm);
  build.launch(Kernel::gather_rows, Role::head_rows, {build.body_output()}, {rows});
  const uint16_t normed = build.activation(Role::head_normed, model.config.emb, kind);
  add_norm(build, Role::final_norm, weights.final_norm, rows, Role::head_normed);
  return normed;
}

void add_head(Builder& build, const Model& model) {
  const Config& config = model.config;
  const Weights& weights = model.weights;
  const bool tied = weights.head.bytes.data() == weights.embedding.bytes.data();
  const uint16_t normed = add_final_norm(build, model, SlotKind::scratch);
  // On the head's input, which has fewer values than its output.
  scale_in_place(build, Role::logit_scale, normed, 1 / config.logit_divisor);
  const bool is_capped = config.logit_cap != 0;
  const SlotKind kind = build.has_candidates() ? SlotKind::scratch : SlotKind::output;
  uint16_t logits =
      build.activation(Role::logits, config.vocab, is_capped ? SlotKind::scratch : kind);
  build.enter_block(Block::lm_head);
  add_projections(build, {{Role::lm_head, normed, weights.head, weights.head_lora, logits,
                           kNoTensor, tied ? Role::embedding : Role::lm_head}});
  if (is_capped) {  // in a slot of its own, as add_scale() does it
    const uint16_t capped = build.activation(Role::logit_cap, config.vocab, kind);
    build.launch(Kernel::soft_cap, Role::logit_cap, {logits}, {capped});
    build.last().shape.factor = config.logit_cap;
    logits = capped;
  }
  if (build.has_candidates())
    build.launch(Kernel::top_k, Role::candidates, {logits}, {build.candidates()});
}

}  // namespace

std::vector<LayerState> layer_states(const Config& config, uint32_t layer) {
  std::vector<Role> roles;
  switch (config.kind_of(layer)) {
    case LayerKind::attention:
      break;
    case LayerKind::short_conv:
      roles = {Role::conv_state};
      break;
    case LayerKind::delta_rule:
    case LayerKind::mamba2:
      roles = {Role::conv_state, Role::recur_state};
      break;
  }
  const std::vector<StateSize> sizes = state_sizes(config, layer);
  TYTO_ASSERT(sizes.size() == roles.size());
  std::vector<LayerState> states;
  for (size_t i = 0; i < roles.size(); ++i)
    states.push_back({roles[i], sizes[i].rows, sizes[i].cols});
  return states;
}

ForwardProgram forward_program(const Model& model, const std::vector<float>& rope_frequencies,
                               Part part, const ForwardShape& shape) {
  Builder build(model.config, shape);
  if (part == Part::body || part == Part::whole) add_body(build, model, rope_frequencies);
  if (part == Part::head || part == Part::whole) add_head(build, model);
  if (part == Part::hidden) add_final_norm(build, model, SlotKind::output);
  constexpr const char* kNames[] = {"body", "head", "token", "hidden"};
  return build.take(kNames[static_cast<size_t>(part)]);
}

}  // namespace tyto
