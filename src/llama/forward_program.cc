#include "llama/forward_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"

namespace tyto {
namespace {

class Builder {
 public:
  Builder(const Config& config, const ForwardShape& shape) : config_(config), shape_(shape) {}

  uint16_t activation(const std::string& name, uint64_t width, SlotKind kind = SlotKind::scratch) {
    return slot({name, kind, shape_.activations, shape_.tokens, width}, {});
  }

  uint16_t body_output() {
    const uint32_t rows = std::max(shape_.tokens, shape_.body_tokens);
    return slot({"x", SlotKind::scratch, shape_.activations, rows, config_.emb}, {});
  }

  uint16_t token_ids() {
    return slot({"tokens", SlotKind::input, DType::i32, shape_.tokens, 1}, {});
  }

  uint16_t weight(const std::string& name, const TensorView& view) {
    return slot({name, SlotKind::weight, view.dtype, view.rows, view.cols}, view);
  }

  uint16_t cache(const std::string& name) {
    const uint64_t rows = uint64_t{config_.kv_heads} * shape_.context;
    return slot({name, SlotKind::kv, shape_.kv_type, rows, config_.head_dim}, {});
  }

  // Arguments in the kernel's order: those it reads, those it writes, then an optional one it
  // reads.
  void launch(Kernel kernel, const std::string& step, std::vector<uint16_t> reads,
              std::vector<uint16_t> writes, std::vector<uint16_t> late_reads = {}) {
    Launch launch{kernel, prefix_ + step, prefix_ + block_, {}, {}};
    if (!op_.empty()) launch.op = prefix_ + op_;
    for (uint16_t slot : reads) launch.args.push_back({slot, true, false});
    for (uint16_t slot : writes) launch.args.push_back({slot, false, true});
    for (uint16_t slot : late_reads) launch.args.push_back({slot, true, false});
    launch.shape.head_dim = config_.head_dim;
    launch.shape.kv_heads = config_.kv_heads;
    launch.shape.context = shape_.context;
    launch.shape.kv_group = shape_.kv_group;
    launch.shape.rope_pairs = config_.rope.layout == RopeLayout::pairs;
    launch.shape.eps = config_.norm_eps;
    result_.program.launches.push_back(std::move(launch));
  }

  // For kernels that change their first argument in place.
  void launch_in_place(Kernel kernel, const std::string& step, uint16_t target, uint16_t other) {
    launch(kernel, step, {target, other}, {});
    last().args[0].writes = true;
  }

  Launch& last() { return result_.program.launches.back(); }
  void enter_layer(uint32_t layer) { prefix_ = fmt::format("L{:02}.", layer); }
  void leave_layers() { prefix_.clear(); }
  void enter_block(const std::string& name) { block_ = name; }
  void enter_op(const std::string& name) { op_ = name; }
  void leave_op() { op_.clear(); }
  bool from_start() const { return shape_.from_start; }
  std::string name(const std::string& in_layer) const { return prefix_ + in_layer; }

  ForwardProgram take(const std::string& name) {
    result_.program.name = name;
    return std::move(result_);
  }

 private:
  uint16_t slot(const Slot& slot, const TensorView& view) {
    const auto [entry, is_new] =
        by_name_.try_emplace(slot.name, static_cast<uint16_t>(result_.program.slots.size()));
    if (is_new) {
      TYTO_ASSERT(result_.program.slots.size() < UINT16_MAX);
      result_.program.slots.push_back(slot);
      result_.weights.push_back(view);
    }
    return entry->second;
  }

  const Config& config_;
  const ForwardShape& shape_;
  ForwardProgram result_;
  std::map<std::string, uint16_t> by_name_;
  std::string prefix_;  // "L03." inside a layer
  std::string block_;
  std::string op_;
};

void add_projection(Builder& build, const std::string& what, uint16_t x, const TensorView& weight,
                    const TensorView& bias, uint16_t y) {
  std::vector<uint16_t> biases;
  if (!bias.empty()) biases.push_back(build.weight(build.name(what + "_bias"), bias));
  build.launch(Kernel::matmul, what, {x, build.weight(build.name(what), weight)}, {y}, biases);
}

void add_head_norm_and_rope(Builder& build, const std::string& what, uint32_t heads, uint16_t x,
                            const TensorView& norm, uint16_t rope_table) {
  if (!norm.empty()) {
    build.launch(Kernel::rmsnorm, what + "_norm",
                 {x, build.weight(build.name(what + "_norm"), norm)}, {x});
    build.last().shape.heads = heads;
  }
  build.launch_in_place(Kernel::rope, what + "_rope", x, rope_table);
  build.last().shape.heads = heads;
}

void add_attention(Builder& build, const Config& config, const LayerWeights& weights) {
  const uint16_t x = build.activation("x", config.emb);
  const uint16_t normed = build.activation("normed", config.emb);
  const uint16_t q = build.activation("q", config.q_width());
  const uint16_t k = build.activation("k", config.kv_width());
  const uint16_t v = build.activation("v", config.kv_width());
  const uint16_t mixed = build.activation("mixed", config.q_width());
  const uint16_t rope_table = build.activation("rope_table", config.head_dim);
  const uint16_t k_cache = build.cache(build.name("k_cache"));
  const uint16_t v_cache = build.cache(build.name("v_cache"));

  build.enter_block("rms_qkv_rope");
  build.launch(Kernel::rmsnorm, "attn_norm",
               {x, build.weight(build.name("attn_norm"), weights.attn_norm)}, {normed});
  add_projection(build, "q", normed, weights.q, weights.q_bias, q);
  add_projection(build, "k", normed, weights.k, weights.k_bias, k);
  add_projection(build, "v", normed, weights.v, weights.v_bias, v);
  add_head_norm_and_rope(build, "q", config.heads, q, weights.q_norm, rope_table);
  add_head_norm_and_rope(build, "k", config.kv_heads, k, weights.k_norm, rope_table);
  build.enter_block("attention");
  build.launch(Kernel::kv_append, "kv_append", {k, v}, {k_cache, v_cache});
  if (build.from_start()) {
    build.enter_block("prompt_attention");
    build.launch(Kernel::prompt_attention, "attention", {q, k, v}, {mixed});
  } else {
    build.launch(Kernel::attention, "attention", {q, k_cache, v_cache}, {mixed});
  }
  build.last().shape.heads = config.heads;
}

void add_feed_forward(Builder& build, const Config& config, const LayerWeights& weights) {
  const uint16_t x = build.activation("x", config.emb);
  const uint16_t normed = build.activation("normed", config.emb);
  const uint16_t mixed = build.activation("mixed", config.q_width());
  const uint16_t delta = build.activation("delta", config.emb);
  const uint16_t gate = build.activation("gate", config.hidden);
  const uint16_t up = build.activation("up", config.hidden);

  build.enter_block("o_ffn");
  add_projection(build, "o", mixed, weights.o, {}, delta);
  build.launch_in_place(Kernel::add, "attn_residual", x, delta);
  build.launch(Kernel::rmsnorm, "ffn_norm",
               {x, build.weight(build.name("ffn_norm"), weights.ffn_norm)}, {normed});
  build.enter_op(
      "ffn");  // one operator of IRON's, whose dispatches op-level counts are compared with
  add_projection(build, "gate", normed, weights.gate, {}, gate);
  add_projection(build, "up", normed, weights.up, {}, up);
  build.launch(Kernel::swiglu, "swiglu", {gate, up}, {gate});
  add_projection(build, "down", gate, weights.down, {}, delta);
  build.leave_op();
  build.launch_in_place(Kernel::add, "ffn_residual", x, delta);
}

void add_body(Builder& build, const Model& model, const std::vector<float>& frequencies) {
  const Config& config = model.config;
  const TensorView frequency_view{DType::f32, 1, frequencies.size(),
                                  std::as_bytes(std::span(frequencies))};
  build.enter_block("embed");
  build.launch(Kernel::embed, "embed",
               {build.token_ids(), build.weight("embedding", model.weights.embedding)},
               {build.activation("x", config.emb)});
  build.launch(Kernel::rope_table, "rope_table", {build.weight("frequencies", frequency_view)},
               {build.activation("rope_table", config.head_dim)});
  for (uint32_t layer = 0; layer < config.layers; ++layer) {
    build.enter_layer(layer);
    add_attention(build, config, model.weights.layers[layer]);
    add_feed_forward(build, config, model.weights.layers[layer]);
  }
  build.leave_layers();
}

void add_head(Builder& build, const Model& model) {
  const Config& config = model.config;
  const uint16_t row = build.activation("head_x", config.emb);
  const uint16_t normed = build.activation("head_normed", config.emb);
  const bool tied = model.weights.head.bytes.data() == model.weights.embedding.bytes.data();
  build.enter_block("final_norm");
  build.launch(Kernel::gather_rows, "gather_rows", {build.body_output()}, {row});
  build.launch(Kernel::rmsnorm, "final_norm",
               {row, build.weight("final_norm", model.weights.final_norm)}, {normed});
  build.enter_block("lm_head");
  build.launch(Kernel::matmul, "lm_head",
               {normed, build.weight(tied ? "embedding" : "lm_head", model.weights.head)},
               {build.activation("logits", config.vocab, SlotKind::output)});
}

}  // namespace

ForwardProgram forward_program(const Model& model, const std::vector<float>& rope_frequencies,
                               Part part, const ForwardShape& shape) {
  Builder build(model.config, shape);
  if (part != Part::head) add_body(build, model, rope_frequencies);
  if (part != Part::body) add_head(build, model);
  return build.take(part == Part::body ? "body" : part == Part::head ? "head" : "token");
}

}  // namespace tyto
