// The forward pass as a textbook has it: plain f32 loops, one token at a time, no device, no
// Program. Never optimised; everything faster is measured against it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "model/model.h"
#include "program/program.h"
#include "text/tokenizer/vocabulary.h"

namespace tyto {

class Reference {
 public:
  // Gets the result of every step, by the role and layer that the forward program gives it.
  using OnStep = std::function<void(Role role, uint16_t layer, std::span<const float> values)>;

  explicit Reference(const Model& model, OnStep on_step = {});

  // Logits after this token at the next position. [vocab]
  std::vector<float> forward(Token token);

 private:
  struct Layer {
    std::vector<float> keys;               // [positions, kv_heads, head_dim]
    std::vector<float> values;             // the same
    std::vector<std::vector<float>> rows;  // a convolution's: those before, the oldest first
    std::vector<double> state;             // [heads, key_dim, head_dim]
  };

  // Without a weight there is no norm.
  std::vector<float> norm(Role role, const std::vector<float>& x, const TensorView& weight) const;
  std::vector<float> project(Role role, const TensorView& weight, const LowRank& lora,
                             const std::vector<float>& x, const TensorView& bias = {}) const;
  void scale(Role role, std::vector<float>& x, float factor) const;
  std::vector<float> attention(const LayerWeights& weights, Layer& layer,
                               const std::vector<float>& x);
  // What stands between a layer's norm and the residual stream.
  std::vector<float> mixed(const LayerWeights& weights, Layer& layer, const std::vector<float>& x);
  std::vector<float> delta_rule(const LayerWeights& weights, Layer& layer,
                                const std::vector<float>& x);
  std::vector<float> mamba2(const LayerWeights& weights, Layer& layer, const std::vector<float>& x);
  void add_shared(const LayerWeights& weights, const std::vector<float>& x,
                  std::vector<float>& sum) const;
  std::vector<float> short_conv(const LayerWeights& weights, Layer& layer,
                                const std::vector<float>& x);
  std::vector<float> convolved(const TensorView& weight, Layer& layer,
                               const std::vector<float>& x) const;
  std::vector<float> feed_forward(const LayerWeights& weights, const std::vector<float>& x);
  struct Choice {
    uint32_t expert;
    float weight;
  };
  std::vector<Choice> choose_by_sigmoid(const LayerWeights& weights,
                                        const std::vector<float>& x) const;
  std::vector<Choice> choose_experts(const LayerWeights& weights,
                                     const std::vector<float>& x) const;
  std::vector<float> expert_product(const TensorView& weight, const TensorView& bias,
                                    uint32_t expert, const std::vector<float>& x) const;
  std::vector<float> mixture(const LayerWeights& weights, const std::vector<float>& x);
  void rotate(std::vector<float>& heads) const;
  void show(Role role, const std::vector<float>& values) const;

  const Model& model_;
  const OnStep on_step_;
  uint16_t layer_ = kNoLayer;
  std::vector<float> frequencies_;  // as rope_frequencies() gives them
  std::vector<Layer> layers_;
  uint32_t position_ = 0;
};

}  // namespace tyto
