// A small config of each family, with all that its forward pass has beyond Llama's.
#pragma once

#include <string_view>

#include "model/families.h"
#include "support/random_model.h"

namespace tyto::testing_support {

inline Config config_of(std::string_view model_type) {
  Config config = small_config();
  config.architecture = model_type;
  const Family* family = family_of_model_type(model_type);
  if (family->unrotated_step != 0) config.layers = family->unrotated_step;
  if (family->global_step != 0) config.layers = family->global_step;
  apply(*family, config);
  config.rope.layout = family->gguf_layout;
  config.unrotated = unrotated_layers(config.layers, family->unrotated_step);
  if (family->has_multipliers) {
    config.embedding_scale = 12;
    config.residual_scale = 0.22f;
    config.attention_scale = 0.125f;
    config.logit_divisor = 8;
  }
  if (family->recurrent == LayerKind::short_conv) {
    config.layers = 4;
    set_layer_kinds(
        config, {family->recurrent, LayerKind::attention, family->recurrent, family->recurrent});
    config.conv_taps = 3;
  }
  if (family->recurrent == LayerKind::delta_rule) {
    config.layers = 4;
    set_layer_kinds(
        config, {family->recurrent, LayerKind::attention, family->recurrent, LayerKind::attention});
    config.conv_taps = 4;
    config.recurrent = {.key_heads = 2,
                        .heads = 6,
                        .key_dim = 12,
                        .head_dim = 40,
                        .is_tiled = family->tiled_heads,
                        .is_joint = family->joint_times};
    config.rope.rotated = 4;
    if (family->shared_expert) config.shared_hidden = 24;
  }
  if (family->recurrent == LayerKind::mamba2) {
    config.layers = 4;
    set_layer_kinds(
        config, {family->recurrent, LayerKind::attention, family->recurrent, family->recurrent});
    config.unrotated.assign(config.layers, !family->rotates);
    config.conv_taps = 4;
    config.recurrent = {.key_heads = 2, .heads = 6, .key_dim = 12, .head_dim = 40};
    config.recurrent_norms = 2;
    config.shared_hidden = 24;
  }
  if (family->sigmoid_routing) {
    config.dense_layers = 1;
    config.choice_bias = true;
    config.expert_scale = 1.5f;
  }
  if (!family->experts.empty()) {
    config.experts = 6;
    config.experts_used = 2;
    config.expert_hidden = 32;
    config.norm_eps = family->norm_eps;
  }
  if (family->sinks) {
    config.window = 5;
    set_windowed(config, windowed_layers(config.layers, family->global_step));
  }
  if (family->scales_logits) config.logit_divisor = 16;
  if (family->rotates_in_part && family->recurrent == LayerKind::attention) {
    config.rope.rotated = 12;
    config.rope.scaling = RopeScaling::longrope;
    config.rope.original_context = 32;
    config.rope.attention_factor = 1.2f;
    config.rope.short_divisors = {1, 1, 1.1f, 1.2f, 1.3f, 1.5f};
    config.rope.long_divisors = {1, 2, 4, 8, 16, 32};
    choose_divisors(config, 0);
  }
  if (family->has_window) {
    config.window = 5;  // texts of these tests are longer
    set_windowed(config, windowed_layers(config.layers, family->global_step));
    if (family->window_theta != 0) config.window_theta = 100;
  }
  if (family->has_caps) {
    config.score_cap = 3;
    config.logit_cap = 4;
    config.attention_scale = 0.5f;
  }
  return config;
}

}  // namespace tyto::testing_support
