#include "model/families.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/spelling.h"
#include "base/utf8.h"

namespace tyto {
namespace {

constexpr Family kFamilies[] = {
    // A few GGUFs of this architecture have Q/K/V biases.
    {.model_type = "llama",
     .gguf = "llama",
     .class_name = "LlamaForCausalLM",
     .gguf_layout = RopeLayout::pairs,
     .gguf_experts = true},
    {.model_type = "mistral",
     .gguf = "llama",
     .class_name = "MistralForCausalLM",
     .gguf_layout = RopeLayout::pairs,
     .has_window = true,
     .context = 131072},
    {.model_type = "qwen2",
     .gguf = "qwen2",
     .class_name = "Qwen2ForCausalLM",
     .qkv_bias = true,
     .context = 32768},
    {.model_type = "qwen3",
     .gguf = "qwen3",
     .class_name = "Qwen3ForCausalLM",
     .qk_norm = true,
     .context = 32768,
     .head_dim = 128},
    {.model_type = "granite",
     .gguf = "granite",
     .class_name = "GraniteForCausalLM",
     .gguf_layout = RopeLayout::pairs,
     .has_multipliers = true},
    {.model_type = "olmo2",
     .gguf = "olmo2",
     .class_name = "Olmo2ForCausalLM",
     .qk_norm = true,
     .wide_qk_norm = true,
     .norms = Norms::after,
     .norm_eps = 1e-5f},
    // GGUFs do not say which layers have no rope: in this architecture it is every fourth.
    {.model_type = "smollm3",
     .gguf = "smollm3",
     .class_name = "SmolLM3ForCausalLM",
     .gguf_layout = RopeLayout::pairs,
     .unrotated_step = 4,
     .context = 32768,
     .rope_theta = 2000000.0f},
    // Also Phi-3.5-mini, Phi-4 and Phi-4-mini.
    {.model_type = "phi3",
     .gguf = "phi3",
     .class_name = "Phi3ForCausalLM",
     .fused_projections = true,
     .rotates_in_part = true,
     .has_window = true,
     .context = 4096,
     .norm_eps = 1e-5f},
    {.model_type = "gemma2",
     .gguf = "gemma2",
     .class_name = "Gemma2ForCausalLM",
     .norms = Norms::both,
     .has_window = true,
     .context = 8192,
     .head_dim = 256,
     .window = 4096,
     .global_step = 2,
     .activation = Activation::gelu_tanh,
     .scales_embedding = true,
     .norms_from_zero = true,
     .has_caps = true,
     .score_cap = 50,
     .logit_cap = 30,
     .narrow_layers = 46},
    {.model_type = "gemma3_text",
     .gguf = "gemma3",
     .class_name = "Gemma3ForCausalLM",
     .qk_norm = true,
     .norms = Norms::both,
     .has_window = true,
     .context = 131072,
     .head_dim = 256,
     .rope_theta = 1000000.0f,
     .global_step = 6,
     .window_theta = 10000.0f,
     .activation = Activation::gelu_tanh,
     .scales_embedding = true,
     .norms_from_zero = true,
     .has_caps = true,
     .narrow_layers = 62},
    // Command-R and Aya. Its checkpoints rotate pairs, too.
    {.model_type = "cohere",
     .gguf = "command-r",
     .class_name = "CohereForCausalLM",
     .gguf_layout = RopeLayout::pairs,
     .context = 8192,
     .norm_eps = 1e-5f,
     .eps_key = "layer_norm_eps",
     .layer_norm = true,
     .parallel_residual = true,
     .scales_logits = true,
     .hf_layout = RopeLayout::pairs},
    {.model_type = "qwen3_moe",
     .gguf = "qwen3moe",
     .class_name = "Qwen3MoeForCausalLM",
     .qk_norm = true,
     .context = 32768,
     .experts = "num_experts",
     .gguf_experts = true,
     .weighs_chosen_alone = false},
    {.model_type = "mixtral",
     .gguf = "llama",
     .class_name = "MixtralForCausalLM",
     .gguf_layout = RopeLayout::pairs,
     .has_window = true,
     .context = 131072,
     .norm_eps = 1e-5f,
     .rope_theta = 1000000.0f,
     .experts = "num_local_experts",
     .gguf_experts = true},
    {.model_type = "gpt_oss",
     .gguf = "gpt-oss",
     .class_name = "GptOssForCausalLM",
     .qkv_bias = true,
     .has_window = true,
     .context = 131072,
     .head_dim = 64,
     .norm_eps = 1e-5f,
     .rope_theta = 150000.0f,
     .global_step = 2,
     .activation = Activation::swiglu_oai,
     .experts = "num_local_experts",
     .gguf_experts = true,
     .expert_biases = true,
     .sinks = true},
    {.model_type = "lfm2",
     .gguf = "lfm2",
     .class_name = "Lfm2ForCausalLM",
     .qk_norm = true,
     .context = 128000,
     .norm_eps = 1e-5f,
     .eps_key = "norm_eps",
     .rope_theta = 1000000.0f,
     .recurrent = LayerKind::short_conv,
     .recurrent_type = "conv"},
    {.model_type = "lfm2_moe",
     .gguf = "lfm2moe",
     .class_name = "Lfm2MoeForCausalLM",
     .qk_norm = true,
     .context = 128000,
     .norm_eps = 1e-5f,
     .eps_key = "norm_eps",
     .rope_theta = 1000000.0f,
     .experts = "num_experts",
     .gguf_experts = true,
     .recurrent = LayerKind::short_conv,
     .recurrent_type = "conv",
     .sigmoid_routing = true},
    // Also Qwen3.6 and Qwen3.8.
    {.model_type = "qwen3_5_text",
     .gguf = "qwen35",
     .class_name = "Qwen3_5ForCausalLM",
     .qk_norm = true,
     .rotates_in_part = true,
     .context = 32768,
     .head_dim = 256,
     .norms_from_zero = true,
     .recurrent = LayerKind::delta_rule,
     .recurrent_type = "linear_attention",
     .tiled_heads = true,
     .attention_gate = true,
     .attention_step = 4,
     .rotated_part = 0.25f,
     .around = "qwen3_5"},
    {.model_type = "qwen3_5_moe_text",
     .gguf = "qwen35moe",
     .class_name = "Qwen3_5MoeForCausalLM",
     .qk_norm = true,
     .rotates_in_part = true,
     .context = 32768,
     .head_dim = 256,
     .norms_from_zero = true,
     .experts = "num_experts",
     .gguf_experts = true,
     .recurrent = LayerKind::delta_rule,
     .recurrent_type = "linear_attention",
     .tiled_heads = true,
     .attention_gate = true,
     .attention_step = 4,
     .rotated_part = 0.25f,
     .around = "qwen3_5_moe",
     .shared_expert = true},
    {.model_type = "qwen3_next",
     .gguf = "qwen3next",
     .class_name = "Qwen3NextForCausalLM",
     .qk_norm = true,
     .rotates_in_part = true,
     .context = 32768,
     .head_dim = 256,
     .norms_from_zero = true,
     .experts = "num_experts",
     .gguf_experts = true,
     .recurrent = LayerKind::delta_rule,
     .recurrent_type = "linear_attention",
     .joint_times = true,
     .attention_gate = true,
     .attention_step = 4,
     .rotated_part = 0.25f,
     .shared_expert = true},
    // Granite 4.
    {.model_type = "granitemoehybrid",
     .gguf = "granitehybrid",
     .class_name = "GraniteMoeHybridForCausalLM",
     .gguf_layout = RopeLayout::pairs,
     .has_multipliers = true,
     .experts = "num_local_experts",
     .gguf_experts = true,
     .recurrent = LayerKind::mamba2,
     .recurrent_type = "linear_attention",
     .shared_expert = true,
     .gates_shared = false,
     .rotates = false,
     .may_be_dense = true},
};

const Family* find(std::string_view name, std::string_view Family::* field) {
  const auto* const found = std::ranges::find(kFamilies, name, field);
  return found == std::end(kFamilies) ? nullptr : found;
}

}  // namespace

std::span<const Family> families() {
  return kFamilies;
}

const Family* family_of_model_type(std::string_view name) {
  return find(name, &Family::model_type);
}

const Family* family_of_gguf(std::string_view name) {
  return find(name, &Family::gguf);
}

const Family* family_around(std::string_view name) {
  return name.empty() ? nullptr : find(name, &Family::around);
}

void apply(const Family& family, Config& config) {
  config.qkv_bias = family.qkv_bias;
  config.attention_gate = family.attention_gate;
  config.shared_gate = family.gates_shared;
  config.sigmoid_routing = family.sigmoid_routing;
  config.qk_norm = family.qk_norm;
  config.wide_qk_norm = family.wide_qk_norm;
  config.norms = family.norms;
  config.fused_projections = family.fused_projections;
  config.layer_norm = family.layer_norm;
  config.parallel_residual = family.parallel_residual;
  config.expert_bias = config.o_bias = family.expert_biases;
  config.sinks = family.sinks;
  config.activation = family.activation;
  if (family.scales_embedding) config.embedding_scale = std::sqrt(static_cast<float>(config.emb));
}

std::vector<bool> windowed_layers(uint32_t layers, uint32_t step) {
  if (step == 0) return {};
  std::vector<bool> windowed;
  for (uint32_t layer = 1; layer <= layers; ++layer) windowed.push_back(layer % step != 0);
  return windowed;
}

float gguf_attention_scale(const Family& family, const Config& config) {
  if (family.narrow_layers == 0 || config.layers != family.narrow_layers) return 0;
  return 1.0f / std::sqrt(static_cast<float>(config.emb / config.heads));
}

std::vector<LayerKind> recurrent_layers(const Family& family, uint32_t layers, uint32_t step) {
  std::vector<LayerKind> kinds;
  for (uint32_t layer = 1; layer <= layers; ++layer)
    kinds.push_back(step != 0 && layer % step == 0 ? LayerKind::attention : family.recurrent);
  return kinds;
}

std::vector<bool> unrotated_layers(uint32_t layers, uint32_t step) {
  if (step == 0) return {};
  std::vector<bool> unrotated;
  for (uint32_t layer = 1; layer <= layers; ++layer) unrotated.push_back(layer % step == 0);
  return unrotated;
}

void fail_family(const std::string& where, std::string_view name, FamilyNames names) {
  std::vector<std::string_view> known;
  for (const Family& family : kFamilies) {
    const std::string_view other = names == FamilyNames::gguf ? family.gguf : family.model_type;
    if (std::ranges::find(known, other) == known.end()) known.push_back(other);
  }
  throw Error(ErrorCode::unsupported, where,
              fmt::format("architecture {}, which is not supported; these are: {}",
                          printable_name(name), joined(known, ", ")),
              "take a model of one of these families");
}

}  // namespace tyto
