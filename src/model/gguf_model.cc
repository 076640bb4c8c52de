// Config and weights out of GGUF metadata and tensors.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/printable.h"
#include "model/expert_tensors.h"
#include "model/families.h"
#include "model/gguf.h"
#include "model/gguf_metadata.h"
#include "model/weight_table.h"

namespace tyto {
namespace {

const std::string& architecture_name(const Gguf& gguf) {
  const GgufKeys keys(gguf);
  const std::string* name = keys.text("general.architecture");
  if (name == nullptr) fail_input(keys.where("general.architecture"), "is missing");
  return *name;
}

const TensorView* find_tensor(const Gguf& gguf, std::string_view name) {
  for (const NamedTensor& tensor : gguf.tensors)
    if (tensor.name == name) return &tensor.view;
  return nullptr;
}

// Keys below "<architecture>.", with the checks every number of a config needs.
struct ArchitectureKeys {
  const GgufKeys& keys;
  std::string prefix;

  std::optional<uint32_t> count(const char* key) const {
    const auto value = keys.integer(prefix + key);
    if (value && *value > UINT32_MAX)
      fail_input(keys.where(prefix + key), "{} is too large", *value);
    return value ? std::optional(static_cast<uint32_t>(*value)) : std::nullopt;
  }
  uint32_t required(const char* key) const {
    const auto value = count(key);
    if (!value) fail_input(keys.where(prefix + key), "is missing");
    return *value;
  }
  std::optional<float> real(const char* key, const RealRange& range) const {
    const auto value = keys.real(prefix + key);
    return value ? std::optional(checked(*value, range, keys.where(prefix + key))) : std::nullopt;
  }
};

// Files have by how much rotated values grow beyond yarn's own rule, or the weight of a second rule
// that they are divided by.
void read_yarn(const ArchitectureKeys& arch, Config& config) {
  Rope& rope = config.rope;
  rope.scaling = RopeScaling::yarn;
  rope.factor = arch.real("rope.scaling.factor", kRopeFactors).value_or(1);
  rope.original_context =
      arch.count("rope.scaling.original_context_length").value_or(config.context);
  rope.beta_fast = arch.real("rope.scaling.yarn_beta_fast", kRopeFactors).value_or(rope.beta_fast);
  rope.beta_slow = arch.real("rope.scaling.yarn_beta_slow", kRopeFactors).value_or(rope.beta_slow);
  rope.whole_band = arch.keys.flag(arch.prefix + "rope.scaling.yarn_truncate").value_or(true);
  const double logarithm = std::max(0.0, std::log(static_cast<double>(rope.factor)));
  const double weight =
      arch.keys.real(arch.prefix + "rope.scaling.yarn_log_multiplier").value_or(0);
  const double given = arch.real("rope.scaling.attn_factor", kRopeFactors).value_or(1);
  rope.attention_factor =
      checked(given * (1 + 0.1 * logarithm) / (1 + 0.1 * weight * logarithm), kRopeFactors,
              arch.keys.where(arch.prefix + "rope.scaling.factor"));
}

void read_rope(const ArchitectureKeys& arch, const Family& family, Config& config) {
  const GgufKeys& keys = arch.keys;
  const uint32_t rotated = arch.count("rope.dimension_count").value_or(config.head_dim);
  if (rotated != config.head_dim && !family.rotates_in_part)
    fail_unsupported(keys.where(arch.prefix + "rope.dimension_count"),
                     "{} of {} values of a head rotate; only whole heads are supported", rotated,
                     config.head_dim);
  if (rotated == 0)
    fail_input(keys.where(arch.prefix + "rope.dimension_count"), "leaves nothing to rotate");
  Rope& rope = config.rope;
  if (rotated != config.head_dim) rope.rotated = rotated;
  rope.theta = arch.real("rope.freq_base", kRopeThetas).value_or(10000.0f);
  const std::string type_key = arch.prefix + "rope.scaling.type";
  const std::string* type = keys.text(type_key);
  if (type != nullptr && *type == "yarn") return read_yarn(arch, config);
  if (type != nullptr && *type != "none" && *type != "linear")
    throw Error(ErrorCode::unsupported, keys.where(type_key),
                fmt::format("{}; none, linear and yarn are supported", printable_name(*type)),
                "get a file of the model that was converted without it, for its first context");
  // Files of before rope.scaling.* say only by how much positions shrink, and a factor without a
  // type is a linear one. Zero is how some writers say that there is none.
  const char* key =
      keys.has(arch.prefix + "rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear";
  const double shrink = keys.real(arch.prefix + key).value_or(1.0);
  const bool linear = type == nullptr || *type == "linear";
  if (linear && shrink != 1.0 && shrink != 0.0) {
    rope.scaling = RopeScaling::linear;
    rope.factor = checked(shrink, kRopeFactors, keys.where(arch.prefix + key));
  }
}

std::vector<float> divisors(const Gguf& gguf, const char* name, const Config& config) {
  const TensorView* view = find_tensor(gguf, name);
  if (view == nullptr) return {};
  const std::string where = fmt::format("{}: tensor {}", gguf.name, name);
  if (view->dtype != DType::f32) fail_unsupported(where, "type {}", info(view->dtype).name);
  if (view->rows != 1 || view->cols != config.rope_width() / 2)
    fail_input(where, "shape [{}, {}], the config asks for [{}]", view->rows, view->cols,
               config.rope_width() / 2);
  std::vector<float> values(view->cols);
  std::memcpy(values.data(), view->bytes.data(), view->bytes.size());
  for (const float divisor : values) checked(divisor, kRopeFactors, where);
  return values;
}

// Llama 3's files carry the scaling as a tensor of divisors, Phi-3's as two.
void read_divisors(const Gguf& gguf, const ArchitectureKeys& arch, Config& config) {
  Rope& rope = config.rope;
  rope.frequency_divisors = divisors(gguf, "rope_freqs.weight", config);
  rope.short_divisors = divisors(gguf, kShortFactors, config);
  rope.long_divisors = divisors(gguf, kLongFactors, config);
  if (rope.short_divisors.empty() && rope.long_divisors.empty()) return;
  if (!rope.frequency_divisors.empty() || rope.scaling != RopeScaling::none)
    fail_input(gguf.name, "has two rope scalings");
  rope.scaling = RopeScaling::longrope;
  rope.original_context = arch.required("rope.scaling.original_context_length");
  rope.attention_factor = arch.real("rope.scaling.attn_factor", kRopeFactors).value_or(1);
}

void read_shape(const ArchitectureKeys& arch, const Family& family, Config& config) {
  const GgufKeys& keys = arch.keys;
  config.layers = arch.required("block_count");
  config.emb = arch.required("embedding_length");
  config.hidden = arch.required("feed_forward_length");
  config.heads = arch.required("attention.head_count");
  config.kv_heads = arch.count("attention.head_count_kv").value_or(config.heads);
  config.context = arch.required("context_length");
  const char* eps_key =
      family.layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon";
  const auto eps = arch.real(eps_key, kNormEpsilons);
  if (!eps) fail_input(keys.where(arch.prefix + eps_key), "is missing");
  config.norm_eps = *eps;
  if (config.heads == 0) fail_input(keys.where(arch.prefix + "attention.head_count"), "is zero");
  config.head_dim = arch.count("attention.key_length").value_or(config.emb / config.heads);
  const uint32_t value_width = arch.count("attention.value_length").value_or(config.head_dim);
  if (value_width != config.head_dim)
    fail_unsupported(keys.where(arch.prefix + "attention.value_length"),
                     "{} differs from the {} of keys", value_width, config.head_dim);
}

// A step, as in Family::global_step, or a number for each layer that is not zero where it has the
// window.
std::vector<bool> windowed(const ArchitectureKeys& arch, const Family& family, uint32_t layers) {
  const char* key = "attention.sliding_window_pattern";
  if (!arch.keys.has_integers(arch.prefix + key))
    return windowed_layers(layers, arch.count(key).value_or(family.global_step));
  std::vector<bool> result;
  for (const int64_t value : *arch.keys.integers(arch.prefix + key)) result.push_back(value != 0);
  return result;
}

void read_window(const ArchitectureKeys& arch, const Family& family, Config& config) {
  config.window = arch.count("attention.sliding_window").value_or(family.window);
  if (config.window == 0) return;
  set_windowed(config, windowed(arch, family, config.layers));
  const float theta = arch.real("rope.freq_base_swa", kRopeThetas).value_or(family.window_theta);
  const Rope& rope = config.rope;
  if (theta != 0 && (theta != rope.theta || rope.scaling != RopeScaling::none))
    config.window_theta = theta;
}

// Zero is how files say that there is none.
void read_caps(const ArchitectureKeys& arch, const Family& family, Config& config) {
  const auto given = [&](const char* key, float fallback) {
    const double value = arch.keys.real(arch.prefix + key).value_or(fallback);
    return value == 0 ? 0.0f : checked(value, kCaps, arch.keys.where(arch.prefix + key));
  };
  config.score_cap = given("attn_logit_softcapping", family.score_cap);
  config.logit_cap = given("final_logit_softcapping", family.logit_cap);
  config.attention_scale =
      arch.real("attention.scale", kScales).value_or(gguf_attention_scale(family, config));
}

uint32_t vocabulary_size(const Gguf& gguf, const ArchitectureKeys& arch) {
  if (const TensorView* embedding = find_tensor(gguf, "token_embd.weight"))
    return static_cast<uint32_t>(std::min<uint64_t>(embedding->rows, UINT32_MAX));
  if (const auto* tokens = arch.keys.strings("tokenizer.ggml.tokens"))
    return static_cast<uint32_t>(tokens->size());
  return arch.required("vocab_size");
}

// Granite's, under the names that llama.cpp gives them. Zero is how its converter's readers say
// that there is none.
void read_multipliers(const ArchitectureKeys& arch, Config& config) {
  const auto given = [&](const char* key, float fallback) {
    const double value = arch.keys.real(arch.prefix + key).value_or(0);
    return value == 0 ? fallback : checked(value, kScales, arch.keys.where(arch.prefix + key));
  };
  config.embedding_scale = given("embedding_scale", 1);
  config.residual_scale = given("residual_scale", 1);
  config.attention_scale = given("attention.scale", 0);
  config.logit_divisor = given("logit_scale", 1);
  const std::string rope = arch.prefix + "rope.scaling.finetuned";
  if (!arch.keys.flag(rope).value_or(true))
    fail_unsupported(arch.keys.where(rope),
                     "false, which in this family means a model without rope");
}

void read_experts(const ArchitectureKeys& arch, const Family& family, Config& config) {
  config.experts = arch.count("expert_count").value_or(0);
  if (!config.has_experts()) {
    if (!family.experts.empty())
      fail_input(arch.keys.where(arch.prefix + "expert_count"), "is missing");
    return;
  }
  if (!family.gguf_experts)
    throw Error(ErrorCode::unsupported, arch.keys.where(arch.prefix + "expert_count"),
                "a mixture of experts, which is not supported in this family",
                "take a dense model of the family");
  config.experts_used = arch.required("expert_used_count");
  config.expert_hidden = arch.count("expert_feed_forward_length").value_or(config.hidden);
  if (arch.count("expert_shared_count").value_or(0) > 0)
    fail_unsupported(arch.keys.where(arch.prefix + "expert_shared_count"),
                     "experts that every token takes");
  if (arch.count("leading_dense_block_count").value_or(0) > 0)
    fail_unsupported(arch.keys.where(arch.prefix + "leading_dense_block_count"),
                     "layers without experts beside layers with them");
}

void read_config(const Gguf& gguf, const Family& family, Config& config) {
  const GgufKeys keys(gguf);
  const ArchitectureKeys arch{keys, std::string(family.gguf) + "."};
  read_shape(arch, family, config);
  config.vocab = vocabulary_size(gguf, arch);
  apply(family, config);
  read_experts(arch, family, config);
  config.rope.layout = family.gguf_layout;
  read_rope(arch, family, config);
  if (config.layers <= kMostLayers) read_window(arch, family, config);
  if (family.has_multipliers) read_multipliers(arch, config);
  if (family.has_caps) read_caps(arch, family, config);
  if (family.scales_logits)
    config.logit_divisor = 1 / arch.real("logit_scale", kScales).value_or(1.0f);
  config.qkv_bias |= find_tensor(gguf, "blk.0.attn_q.bias") != nullptr;
  config.tied_head = find_tensor(gguf, "output.weight") == nullptr;
  read_divisors(gguf, arch, config);
  check(config, gguf.name);
  config.unrotated = unrotated_layers(config.layers, family.unrotated_step);
  choose_divisors(config, 0);
}

}  // namespace

void fail_adapter(const std::string& where) {
  throw Error(ErrorCode::unsupported, where, "is a LoRA adapter, not a model",
              "give its model with -m, and the adapter with --lora");
}

void check_architecture(const Gguf& gguf) {
  const std::string& name = architecture_name(gguf);
  if (family_of_gguf(name) == nullptr) fail_family(gguf.name, name, FamilyNames::gguf);
}

// Nothing but names depends on it, so one that makes no sense is as none.
std::optional<uint64_t> file_type_of(const Gguf& gguf) {
  const auto found = gguf.metadata.find("general.file_type");
  if (found == gguf.metadata.end()) return std::nullopt;
  if (const auto* value = std::get_if<uint64_t>(&found->second.value)) return *value;
  const auto* value = std::get_if<int64_t>(&found->second.value);
  return value != nullptr && *value >= 0 ? std::optional(static_cast<uint64_t>(*value))
                                         : std::nullopt;
}

void fill_model_from_gguf(const Gguf& gguf, Need need, Model& model) {
  const GgufKeys keys(gguf);
  model.format = fmt::format("gguf v{}", gguf.version);
  model.file_type = file_type_of(gguf);
  model.tensors = gguf.tensors;
  if (const std::string* type = keys.text("general.type"); type != nullptr && *type == "adapter")
    fail_adapter(gguf.name);
  const std::string& name = architecture_name(gguf);
  model.config.architecture = name;
  if (const std::string* title = keys.text("general.name")) model.config.name = *title;

  const Family* family = family_of_gguf(name);
  if (family == nullptr && need == Need::weights) fail_family(gguf.name, name, FamilyNames::gguf);
  if (family != nullptr) {
    read_config(gguf, *family, model.config);
    if (!gguf.tensors.empty())
      bind_weights(
          with_experts_together(gguf.tensors, model.config, NameStyle::gguf, gguf.name, model),
          model.config, NameStyle::gguf, gguf.name, model.weights);
    else if (need == Need::weights)
      fail_input(gguf.name, "has a vocabulary only, no tensors");
  }

  model.vocabulary = vocabulary_from_gguf(gguf);
  if (!model.vocabulary && need == Need::vocabulary)
    fail_input(keys.where("tokenizer.ggml.model"), "the file has no vocabulary");
  if (model.vocabulary && family != nullptr && model.vocabulary->pieces.size() > model.config.vocab)
    fail_input(gguf.name, "{} tokens, but the embedding has {} rows",
               model.vocabulary->pieces.size(), model.config.vocab);
}

}  // namespace tyto
