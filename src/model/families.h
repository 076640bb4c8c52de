// The families of models that Tyto computes, as data: what their files are called by, what their
// names alone imply, and what a config.json leaves out. Readers and writers go by these rows; the
// forward pass goes by the Config that comes of them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"

namespace tyto {

struct Family {
  std::string_view model_type;  // in config.json
  std::string_view gguf;        // general.architecture
  std::string_view class_name;  // in Hugging Face's "architectures"
  RopeLayout gguf_layout = RopeLayout::halves;
  bool qkv_bias = false;
  bool qk_norm = false;
  bool wide_qk_norm = false;
  Norms norms = Norms::before;
  bool has_multipliers = false;
  bool fused_projections = false;
  bool rotates_in_part = false;  // its files may say so
  bool has_window = false;  // a sliding_window of config.json is meant unless it says otherwise
  // Every layer whose number, counted from one, is a multiple of it does not rotate. 0: all do
  uint32_t unrotated_step = 0;
  // Where a config.json does not say.
  uint32_t context = 2048;
  uint32_t head_dim = 0;  // 0: embedding width / heads
  float norm_eps = 1e-6f;
  std::string_view eps_key = "rms_norm_eps";  // in a config.json
  float rope_theta = 10000.0f;
  uint32_t window = 0;
  // Windowed layers whose number, counted from one, is a multiple of it see everything. 0: none
  // does
  uint32_t global_step = 0;
  float window_theta = 0;  // Config::window_theta
  // Gemma's.
  Activation activation = Activation::silu;
  bool scales_embedding = false;  // by the root of its width
  bool norms_from_zero = false;   // norms of checkpoints hold what is added to one
  bool has_caps = false;          // scores and logits may be bounded; a GGUF that does not say:
  float score_cap = 0;
  float logit_cap = 0;
  // The model with `narrow_layers` layers divides scores by the root of emb / heads, not of
  // head_dim, which GGUFs do not say.
  uint32_t narrow_layers = 0;
  bool layer_norm = false;
  bool parallel_residual = false;
  bool scales_logits = false;  // its files have a factor of logits, not a divisor
  RopeLayout hf_layout = RopeLayout::halves;
  // What a config.json calls the count of experts; empty: it has none.
  std::string_view experts = {};
  bool gguf_experts = false;   // GGUFs of its architecture may have experts
  bool expert_biases = false;  // the router's and experts', and the attention's output's
  bool sinks = false;
  // Weights of chosen experts add up to one, unless a config.json says otherwise. GGUFs have no key
  // for it, and theirs do.
  bool weighs_chosen_alone = true;
  // What layers are that its files give no keys and values; attention: it has none.
  LayerKind recurrent = LayerKind::attention;
  std::string_view recurrent_type = {};  // what layer_types of a config.json calls them
  bool tiled_heads = false;              // RecurrentHeads::is_tiled, of its GGUFs
  bool joint_times = false;              // RecurrentHeads::is_joint
  bool attention_gate = false;
  uint32_t attention_step =
      0;  // which layers attend where files do not say: each whose number is a multiple
  float rotated_part = 1;  // share of a head that rotates, where a config.json does not say
  // The model_type of config.json files that have this one's as their text_config.
  std::string_view around = {};
  bool shared_expert = false;
  bool sigmoid_routing = false;
  bool gates_shared = true;  // Config::shared_gate
  bool rotates = true;       // else no layer of it does
  // May have no experts; then the shared one is its feed-forward.
  bool may_be_dense = false;
};

std::span<const Family> families();
// Null where there is none of this name. Mistral's GGUFs are Llama's.
const Family* family_of_model_type(std::string_view name);
const Family* family_of_gguf(std::string_view name);
// The family whose config is inside of a checkpoint's (Family::around).
const Family* family_around(std::string_view name);

// The parts of a config that follow from the family and the embedding's width.
void apply(const Family& family, Config& config);
// Config::windowed with every layer but those whose number is a multiple of `step`, which may be 0.
std::vector<bool> windowed_layers(uint32_t layers, uint32_t step);
// Config::attention_scale of a GGUF of the family.
float gguf_attention_scale(const Family& family, const Config& config);
// Config::unrotated with every layer whose number is a multiple of `step`; the layers are checked.
std::vector<bool> unrotated_layers(uint32_t layers, uint32_t step);

// What each layer is where every one whose number, counted from one, is a multiple of `step`
// attends; the layers are checked.
std::vector<LayerKind> recurrent_layers(const Family& family, uint32_t layers, uint32_t step);

// Throws: a file at `where` is of a family that is not here, and these are.
enum class FamilyNames : uint8_t { model_types, gguf };
[[noreturn]] void fail_family(const std::string& where, std::string_view name, FamilyNames names);

}  // namespace tyto
