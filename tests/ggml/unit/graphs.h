// Graphs as llama.cpp builds them, small, with memory and no values: they are not computed.
#pragma once

#include <ggml-impl.h>
#include <ggml.h>

#include <memory>
#include <string>
#include <vector>

#include "ggml/lowering.h"
#include "program/kernels.h"

namespace tyto::plugin {

constexpr int64_t kEmb = 64, kHeads = 4, kKvHeads = 2, kHeadDim = 16, kHidden = 96, kVocab = 80;
constexpr int64_t kKvWidth = kKvHeads * kHeadDim;
constexpr float kEps = 1e-5f;

// Everything that the operations between two attentions allow, and no memory asked for.
inline Offer offer_of_blocks() {
  Offer offer;
  offer.fuses = true;
  offer.longest_k = 4096;
  return offer;
}

// Tensors and a graph of some of them; also the memory of weights that several graphs use.
class Graph {
 public:
  Graph()
      : context_(ggml_init({size_t{4} << 20, nullptr, false}), ggml_free),
        graph_(ggml_new_graph(context_.get())) {}

  ggml_context* context() const { return context_.get(); }
  ggml_cgraph* get() const { return graph_; }

  ggml_tensor* matrix(const std::string& name, int64_t k, int64_t n) const {
    return ggml_set_name(ggml_new_tensor_2d(context(), GGML_TYPE_F16, k, n), name.c_str());
  }
  ggml_tensor* vector(const std::string& name, int64_t width) const {
    return ggml_set_name(ggml_new_tensor_1d(context(), GGML_TYPE_F32, width), name.c_str());
  }
  ggml_tensor* leaf(int64_t width, int64_t tokens) const {
    return ggml_new_tensor_2d(context(), GGML_TYPE_F32, width, tokens);
  }
  ggml_tensor* positions(int64_t tokens) const {
    return ggml_new_tensor_1d(context(), GGML_TYPE_I32, tokens);
  }

  // Computed by another backend: there is no kernel for a scaling.
  ggml_tensor* elsewhere(ggml_tensor* operand) const {
    return ggml_scale(context(), operand, 0.5f);
  }
  ggml_tensor* product(ggml_tensor* weight, ggml_tensor* x) const {
    return ggml_mul_mat(context(), weight, x);
  }
  ggml_tensor* sum(ggml_tensor* a, ggml_tensor* b) const { return ggml_add(context(), a, b); }
  ggml_tensor* norm(ggml_tensor* x, float eps = kEps) const {
    return ggml_rms_norm(context(), x, eps);
  }
  ggml_tensor* norm(ggml_tensor* x, ggml_tensor* weight) const {
    return ggml_mul(context(), norm(x), weight);
  }
  ggml_tensor* heads(ggml_tensor* x) const {
    return ggml_reshape_3d(context(), x, kHeadDim, x->ne[0] / kHeadDim, x->ne[1]);
  }
  ggml_tensor* rope(ggml_tensor* heads, ggml_tensor* positions, float base = 10000,
                    int mode = GGML_ROPE_TYPE_NORMAL, ggml_tensor* factors = nullptr) const {
    return ggml_rope_ext(context(), heads, positions, factors, kHeadDim, mode, 2048, base, 1, 0, 1,
                         32, 1);
  }

  // As the results of the graph, with all that leads to them, in this order.
  template <typename... Tensors>
  void expand(Tensors*... results) const {
    (ggml_build_forward_expand(graph_, results), ...);
  }

 private:
  std::unique_ptr<ggml_context, void (*)(ggml_context*)> context_;
  ggml_cgraph* graph_;
};

inline std::vector<std::string> operations(const Piece& piece) {
  std::vector<std::string> names;
  for (const ggml_tensor* node : piece.nodes) names.emplace_back(ggml_op_name(node->op));
  return names;
}

inline IsNeeded needed_by(const Graph& graph, const std::vector<ggml_tensor*>& run) {
  return [uses = Uses(graph.get()), run](const ggml_tensor* result) {
    return uses.is_needed_beyond(run, result);
  };
}

struct LayerWeights {
  LayerWeights(const Graph& memory, int layer) {
    const auto name = [&](const char* part) {
      return "blk." + std::to_string(layer) + "." + part + ".weight";
    };
    attn_norm = memory.vector(name("attn_norm"), kEmb);
    q = memory.matrix(name("attn_q"), kEmb, kHeads * kHeadDim);
    k = memory.matrix(name("attn_k"), kEmb, kKvWidth);
    v = memory.matrix(name("attn_v"), kEmb, kKvWidth);
    o = memory.matrix(name("attn_output"), kHeads * kHeadDim, kEmb);
    ffn_norm = memory.vector(name("ffn_norm"), kEmb);
    gate = memory.matrix(name("ffn_gate"), kEmb, kHidden);
    up = memory.matrix(name("ffn_up"), kEmb, kHidden);
    down = memory.matrix(name("ffn_down"), kHidden, kEmb);
  }
  ggml_tensor *attn_norm, *q, *k, *v, *o, *ffn_norm, *gate, *up, *down;
};

// Weights and the graph of a forward pass over them.
struct Model {
  explicit Model(int layer_count) {
    for (int i = 0; i < layer_count; ++i) layers.emplace_back(memory, i);
    embedding = memory.matrix("token_embd.weight", kEmb, kVocab);
    output_norm = memory.vector("output_norm.weight", kEmb);
    output = memory.matrix("output.weight", kEmb, kVocab);
  }

  Graph memory;
  std::vector<LayerWeights> layers;
  ggml_tensor *embedding, *output_norm, *output;
};

struct Heads {
  ggml_tensor *q, *k, *v;
};

inline Heads project(const Graph& graph, const LayerWeights& layer, ggml_tensor* normed,
                     ggml_tensor* positions) {
  const auto rotated = [&](ggml_tensor* weight) {
    return graph.rope(graph.heads(graph.product(weight, normed)), positions);
  };
  const Heads heads{rotated(layer.q), rotated(layer.k), graph.product(layer.v, normed)};
  graph.expand(heads.q, heads.k, heads.v);  // as llama.cpp does, so that attention comes after
  return heads;
}

inline ggml_tensor* attention(const Graph& graph, const Heads& heads) {
  ggml_context* context = graph.context();
  const int64_t tokens = heads.q->ne[2];
  ggml_tensor* q = ggml_permute(context, heads.q, 0, 2, 1, 3);
  ggml_tensor* k = ggml_permute(context, heads.k, 0, 2, 1, 3);
  ggml_tensor* v = ggml_cont(context, ggml_permute(context, graph.heads(heads.v), 1, 2, 0, 3));
  ggml_tensor* scores = ggml_soft_max(context, ggml_mul_mat(context, k, q));
  ggml_tensor* mixed = ggml_permute(context, ggml_mul_mat(context, v, scores), 0, 2, 1, 3);
  return ggml_cont_2d(context, mixed, kHeads * kHeadDim, tokens);
}

// What follows attention: the residual stream after the layer.
inline ggml_tensor* feed_forward(const Graph& graph, const LayerWeights& layer, ggml_tensor* mixed,
                                 ggml_tensor* residual) {
  ggml_tensor* x = graph.sum(graph.product(layer.o, mixed), residual);
  ggml_tensor* normed = graph.norm(x, layer.ffn_norm);
  ggml_tensor* gate = graph.product(layer.gate, normed);
  ggml_tensor* up = graph.product(layer.up, normed);
  ggml_tensor* hidden = ggml_swiglu_split(graph.context(), gate, up);
  return graph.sum(graph.product(layer.down, hidden), x);
}

// What lies between two attentions: from one's values to the next one's operands.
inline Heads stretch(const Graph& graph, const LayerWeights& layer, const LayerWeights& next,
                     int64_t tokens) {
  ggml_tensor* mixed = graph.elsewhere(graph.leaf(kHeads * kHeadDim, tokens));
  ggml_tensor* residual = graph.elsewhere(graph.leaf(kEmb, tokens));
  graph.expand(mixed, residual);
  ggml_tensor* x = feed_forward(graph, layer, mixed, residual);
  return project(graph, next, graph.norm(x, next.attn_norm), graph.positions(tokens));
}

inline void forward_pass(const Graph& graph, const Model& model, int64_t tokens) {
  ggml_tensor* positions = graph.positions(tokens);
  ggml_tensor* x = ggml_get_rows(graph.context(), model.embedding, graph.positions(tokens));
  for (const LayerWeights& layer : model.layers) {
    const Heads heads = project(graph, layer, graph.norm(x, layer.attn_norm), positions);
    x = feed_forward(graph, layer, attention(graph, heads), x);
  }
  graph.expand(graph.product(model.output, graph.norm(x, model.output_norm)));
}

}  // namespace tyto::plugin
