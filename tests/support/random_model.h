// Small random models in memory, for tests that need weights but no file.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "model/model.h"
#include "model/weight_table.h"
#include "support/random_blocks.h"
#include "tensor/quant.h"

namespace tyto::testing_support {

// The weights live in `storage`; the views of `model` point into it.
struct RandomModel {
  std::vector<std::unique_ptr<std::vector<std::byte>>> storage;
  Model model;

  TensorView tensor(DType type, uint64_t rows, uint64_t cols, float scale, float mean = 0) {
    if (info(type).block_values > 1 && !is_encodable(type)) {
      storage.push_back(std::make_unique<std::vector<std::byte>>(
          random_blocks(type, rows * cols, 2 * scale, random_)));
      return {type, rows, cols, *storage.back()};
    }
    std::vector<float> values(rows * cols);
    for (float& value : values) {
      const auto unit = static_cast<float>(random_() % 20001) / 10000.0f - 1.0f;
      value = mean + scale * unit;
    }
    storage.push_back(std::make_unique<std::vector<std::byte>>(rows * row_bytes(type, cols)));
    quantize(type, values, *storage.back());
    return {type, rows, cols, *storage.back()};
  }

 private:
  std::mt19937 random_{7};
};

inline Config small_config() {
  Config config;
  config.architecture = "llama";
  config.layers = 2;
  config.emb = 64;
  config.hidden = 96;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 16;
  config.vocab = 61;
  config.context = 96;
  return config;
}

inline RandomModel random_model(const Config& config, DType type) {
  RandomModel result;
  Weights& weights = result.model.weights;
  result.model.config = config;
  weights.embedding = result.tensor(type, config.vocab, config.emb, 1.0f);
  weights.final_norm = result.tensor(DType::f32, 1, config.emb, 0.2f, 1.0f);
  weights.head =
      config.tied_head ? weights.embedding : result.tensor(type, config.vocab, config.emb, 0.3f);
  for (uint32_t i = 0; i < config.layers; ++i) {
    LayerWeights layer;
    const bool is_before = config.norms != Norms::after, is_after = config.norms != Norms::before;
    if (is_before) layer.attn_norm = result.tensor(DType::bf16, 1, config.emb, 0.2f, 1.0f);
    if (config.kind_of(i) == LayerKind::short_conv) {
      const uint64_t emb = config.emb;
      layer.conv_in = result.tensor(type, 3 * emb, emb, 0.3f);
      split_short_conv(config, layer);
      layer.conv = result.tensor(DType::f32, 1, emb * config.conv_taps, 0.7f);
    }
    if (config.kind_of(i) == LayerKind::delta_rule) {
      const RecurrentHeads& shape = config.recurrent;
      layer.recur_in = result.tensor(type, shape.channels(), config.emb, 0.3f);
      layer.recur_gate = result.tensor(type, shape.values(), config.emb, 0.3f);
      if (shape.is_joint)
        layer.recur_both = result.tensor(type, uint64_t{2} * shape.heads, config.emb, 0.3f);
      layer.recur_time = result.tensor(type, shape.heads, config.emb, 0.3f);
      layer.recur_strength = result.tensor(type, shape.heads, config.emb, 0.3f);
      layer.recur_time_bias = result.tensor(DType::f32, 1, shape.heads, 0.5f, -2.0f);
      layer.recur_rates = result.tensor(DType::f32, 1, shape.heads, 0.5f, -1.0f);
      layer.recur_norm = result.tensor(DType::f32, 1, shape.head_dim, 0.2f, 1.0f);
      layer.conv =
          result.tensor(DType::f32, 1, uint64_t{shape.channels()} * config.conv_taps, 0.7f);
    }
    if (config.kind_of(i) == LayerKind::mamba2) {
      const RecurrentHeads& shape = config.recurrent;
      layer.recur_gate = result.tensor(type, shape.values(), config.emb, 0.3f);
      layer.recur_in = result.tensor(type, shape.channels(), config.emb, 0.3f);
      layer.recur_time = result.tensor(type, shape.heads, config.emb, 0.3f);
      layer.recur_time_bias = result.tensor(DType::f32, 1, shape.heads, 0.5f, -2.0f);
      layer.recur_rates = result.tensor(DType::f32, 1, shape.heads, 0.5f, -1.0f);
      layer.recur_skip = result.tensor(DType::f32, 1, shape.heads, 0.5f, 1.0f);
      layer.recur_norm = result.tensor(DType::f32, 1, shape.values(), 0.2f, 1.0f);
      const uint64_t channels = shape.channels();
      layer.conv = result.tensor(DType::f32, 1, channels * config.conv_taps, 0.7f);
      layer.conv_bias = result.tensor(DType::f32, 1, channels, 0.2f);
    }
    if (config.shared_hidden != 0) {
      layer.shared_gate = result.tensor(type, config.shared_hidden, config.emb, 0.3f);
      layer.shared_up = result.tensor(type, config.shared_hidden, config.emb, 0.3f);
      layer.shared_down = result.tensor(type, config.emb, config.shared_hidden, 0.3f);
      layer.shared_share = result.tensor(DType::f32, 1, config.emb, 0.5f);
    }
    layer.q = result.tensor(type, config.q_rows(), config.emb, 0.3f);
    layer.k = result.tensor(type, config.kv_width(), config.emb, 0.3f);
    layer.v = result.tensor(type, config.kv_width(), config.emb, 0.3f);
    if (config.qkv_bias) {
      layer.q_bias = result.tensor(DType::f32, 1, config.q_width(), 0.5f);
      layer.k_bias = result.tensor(DType::f32, 1, config.kv_width(), 0.5f);
      layer.v_bias = result.tensor(DType::f32, 1, config.kv_width(), 0.5f);
    }
    if (config.qk_norm) {
      const bool is_wide = config.wide_qk_norm;
      const uint64_t q_norm = is_wide ? config.q_width() : config.head_dim;
      const uint64_t k_norm = is_wide ? config.kv_width() : config.head_dim;
      layer.q_norm = result.tensor(DType::f32, 1, q_norm, 0.2f, 1.0f);
      layer.k_norm = result.tensor(DType::f32, 1, k_norm, 0.2f, 1.0f);
    }
    const LayerKind kind = config.kind_of(i);
    const uint32_t mixed = kind == LayerKind::attention    ? config.q_width()
                           : kind == LayerKind::short_conv ? config.emb
                                                           : config.recurrent.values();
    layer.o = result.tensor(type, config.emb, mixed, 0.3f);
    if (is_before && !config.parallel_residual)
      layer.ffn_norm = result.tensor(DType::f16, 1, config.emb, 0.2f, 1.0f);
    if (is_after) layer.attn_post_norm = result.tensor(DType::f32, 1, config.emb, 0.2f, 1.0f);
    if (is_after) layer.ffn_post_norm = result.tensor(DType::f32, 1, config.emb, 0.2f, 1.0f);
    const bool has_experts = config.has_experts_in(i);
    const uint64_t experts = has_experts ? config.experts : 1;
    const uint64_t hidden = has_experts ? config.expert_hidden : config.hidden;
    layer.gate = result.tensor(type, experts * hidden, config.emb, 0.3f);
    layer.up = result.tensor(type, experts * hidden, config.emb, 0.3f);
    layer.down = result.tensor(type, experts * config.emb, hidden, 0.3f);
    if (has_experts && config.choice_bias)
      layer.router_bias = result.tensor(DType::f32, 1, config.experts, 0.2f);
    if (has_experts) layer.router = result.tensor(DType::f32, config.experts, config.emb, 0.5f);
    if (config.expert_bias) {
      layer.router_bias = result.tensor(DType::f32, 1, config.experts, 0.5f);
      layer.expert_gate_bias = result.tensor(DType::f32, 1, experts * hidden, 0.5f);
      layer.expert_up_bias = result.tensor(DType::f32, 1, experts * hidden, 0.5f);
      layer.expert_down_bias = result.tensor(DType::f32, 1, experts * config.emb, 0.5f);
    }
    if (config.sinks) layer.sinks = result.tensor(DType::f32, 1, config.heads, 0.5f);
    if (config.o_bias) layer.o_bias = result.tensor(DType::f32, 1, config.emb, 0.5f);
    weights.layers.push_back(layer);
  }
  return result;
}

}  // namespace tyto::testing_support
