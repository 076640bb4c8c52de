// The norms of a model in plain f32 on the host, for the reference and for hidden states.
#pragma once

#include <span>
#include <vector>

#include "model/model.h"

namespace tyto {

// As the model's family has it: RMSNorm, or LayerNorm with or without a bias. Each group of
// weight.cols values is normed by itself. Without a weight there is no norm.
std::vector<float> host_norm(const Config& config, std::span<const float> x,
                             const TensorView& weight, const TensorView& bias = {});

// What the head sees of a row of the residual stream, before the factor of logits.
std::vector<float> host_final_norm(const Model& model, std::span<const float> x);

}  // namespace tyto
