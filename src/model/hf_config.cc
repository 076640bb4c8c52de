#include "model/hf_config.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/printable.h"
#include "model/families.h"

namespace tyto {
namespace {

const Family& find_family(const Json& root) {
  const std::string_view name = root.at("model_type").as_string();
  const Family* family = family_of_model_type(name);
  if (family == nullptr) fail_family(root.path(), name, FamilyNames::model_types);
  return *family;
}

uint32_t as_count(const Json& field) {
  return static_cast<uint32_t>(field.as_uint(UINT32_MAX));
}

// Features that change the arithmetic in ways Tyto does not implement.
void refuse_unsupported(const Json& root) {
  if (root.find("quantization_config"))
    throw Error(ErrorCode::unsupported, root.path(),
                "a quantised checkpoint, which Tyto does not read (quantization_config)",
                "get the model's GGUF as Q4_K_M or Q8_0, or the checkpoint it was made of");
  if (const auto field = root.find("hidden_act"); field && field->as_string() != "silu")
    fail_unsupported(field->path(), "{}; silu is supported", printable_name(field->as_string()));
  if (const auto field = root.find("mlp_bias"); field && field->as_bool())
    fail_unsupported(field->path(), "biases in the feed-forward layer");
  // In all of these architectures the flag also puts a bias on the attention's output.
  if (const auto field = root.find("attention_bias"); field && field->as_bool())
    fail_unsupported(field->path(), "a bias on the attention's output");
}

float as_real(const Json& field, const RealRange& range) {
  return checked(field.as_double(), range, field.path());
}

float real_or(const Json& root, std::string_view key, float fallback, const RealRange& range) {
  const auto field = root.find(key);
  return field ? as_real(*field, range) : fallback;
}

void read_llama3(const Json& field, Rope& rope) {
  rope.scaling = RopeScaling::llama3;
  rope.factor = as_real(field.at("factor"), kRopeFactors);
  rope.low_freq_factor = as_real(field.at("low_freq_factor"), kRopeFactors);
  rope.high_freq_factor = as_real(field.at("high_freq_factor"), kRopeFactors);
  rope.original_context = as_count(field.at("original_max_position_embeddings"));
}

std::vector<float> divisors(const Json& field) {
  std::vector<float> values;
  field.for_each_element(
      [&](size_t, const Json& value) { values.push_back(as_real(value, kRopeFactors)); });
  return values;
}

// How much a value that rotates grows when a model that was trained with `original` positions is
// made for `factor` times as many.
float longrope_factor(double factor, uint32_t original) {
  if (factor <= 1) return 1;
  return static_cast<float>(std::sqrt(1 + std::log(factor) / std::log(original)));
}

// The context it was trained with stands beside it in older files.
void read_longrope(const Json& root, const Json& field, const Config& config, Rope& rope) {
  rope.scaling = RopeScaling::longrope;
  rope.short_divisors = divisors(field.at("short_factor"));
  rope.long_divisors = divisors(field.at("long_factor"));
  const auto original = field.find("original_max_position_embeddings");
  rope.original_context =
      as_count(original ? *original : root.at("original_max_position_embeddings"));
  if (rope.original_context < 2) root.fail("a rope that was trained with fewer than two positions");
  const auto factor = field.find("factor");
  const double ratio = factor ? as_real(*factor, kRopeFactors)
                              : static_cast<double>(config.context) / rope.original_context;
  const auto given = field.find("attention_factor");
  rope.attention_factor =
      given ? as_real(*given, kRopeFactors) : longrope_factor(ratio, rope.original_context);
}

// Transformers 4 has rope_theta beside rope_scaling; version 5 has both inside rope_parameters.
void read_rope(const Json& root, const Family& family, Config& config) {
  Rope& rope = config.rope;
  const auto object = [&](std::string_view key) {
    auto field = root.find(key);
    if (field && !field->is(Json::Type::object)) field->fail("must be an object or null");
    return field;
  };
  const auto newer = object("rope_parameters"), older = object("rope_scaling");
  const auto& field = newer ? newer : older;
  auto part = root.find("partial_rotary_factor");
  if (!part && field) part = field->find("partial_rotary_factor");
  if (part && part->as_double() != 1.0) {
    if (!family.rotates_in_part)
      fail_unsupported(part->path(), "{}; only whole heads rotate", part->as_double());
    constexpr RealRange kParts = {1e-3, 1};
    rope.rotated = static_cast<uint32_t>(double{as_real(*part, kParts)} * config.head_dim);
    if (rope.rotated == 0) part->fail("leaves nothing of a head to rotate");
  }
  rope.theta = real_or(root, "rope_theta", family.rope_theta, kRopeThetas);
  if (!field) return;
  rope.theta = real_or(*field, "rope_theta", rope.theta, kRopeThetas);
  auto type = field->find("rope_type");
  if (!type) type = field->find("type");
  if (!type) return;
  const std::string_view name = type->as_string();
  if (name == "llama3") {
    read_llama3(*field, rope);
  } else if (name == "linear") {
    rope.scaling = RopeScaling::linear;
    rope.factor = as_real(field->at("factor"), kRopeFactors);
  } else if (name == "longrope" || name == "su") {  // what it was called at first
    read_longrope(root, *field, config, rope);
  } else if (name != "default") {
    throw Error(
        ErrorCode::unsupported, type->path(),
        fmt::format("{}; default, linear, llama3 and longrope are supported", printable_name(name)),
        "where the model is meant to run without it in its first context, take it out of "
        "config.json");
  }
}

// The window attention slides over, where one is in force. Qwen configs carry one that
// use_sliding_window switches off; Mistral's is always meant.
std::optional<uint32_t> sliding_window(const Json& root, const Family& family) {
  const auto window = root.find("sliding_window");
  if (!window) return std::nullopt;
  if (!root.bool_or("use_sliding_window", family.has_window)) return std::nullopt;
  return as_count(*window);
}

// Granite's; its own config has 1 where a file does not say.
void read_multipliers(const Json& root, Config& config) {
  config.embedding_scale = real_or(root, "embedding_multiplier", 1.0f, kScales);
  config.residual_scale = real_or(root, "residual_multiplier", 1.0f, kScales);
  config.attention_scale = real_or(root, "attention_multiplier", 1.0f, kScales);
  config.logit_divisor = real_or(root, "logits_scaling", 1.0f, kScales);
}

// Qwen3-MoE may have layers without experts, by either of two fields.
void refuse_dense_layers(const Json& root) {
  if (const auto step = root.find("decoder_sparse_step"); step && as_count(*step) != 1)
    fail_unsupported(step->path(), "{}; experts in every layer are supported", as_count(*step));
  if (const auto layers = root.find("mlp_only_layers"); layers && layers->size() != 0)
    fail_unsupported(layers->path(), "layers without experts beside layers with them");
}

void read_experts(const Json& root, const Family& family, Config& config) {
  refuse_dense_layers(root);
  config.experts = as_count(root.at(family.experts));
  if (config.experts == 0) root.at(family.experts).fail("is zero");
  config.experts_used = as_count(root.at("num_experts_per_tok"));
  const auto width = root.find("moe_intermediate_size");
  config.expert_hidden = width ? as_count(*width) : config.hidden;
  config.weighs_chosen_alone = root.bool_or("norm_topk_prob", family.weighs_chosen_alone);
}

// SmolLM3's list has a zero for every layer without rope, its interval says the same in one number.
std::vector<bool> unrotated(const Json& root, const Family& family, uint32_t layers) {
  if (family.unrotated_step == 0) return {};
  const auto list = root.find("no_rope_layers");
  if (!list) {
    const auto interval = root.find("no_rope_layer_interval");
    return unrotated_layers(layers, interval ? as_count(*interval) : family.unrotated_step);
  }
  if (list->size() != layers)
    list->fail(fmt::format("has {} entries, and there are {} layers", list->size(), layers));
  std::vector<bool> result;
  list->for_each_element(
      [&](size_t, const Json& rotates) { result.push_back(rotates.as_uint(1) == 0); });
  return result;
}

}  // namespace

Config config_from_hf(const Json& root) {
  const Family& family = find_family(root);
  refuse_unsupported(root);
  Config config;
  config.architecture = family.model_type;
  apply(family, config);
  config.name = root.string_or("_name_or_path", "");
  config.layers = as_count(root.at("num_hidden_layers"));
  config.emb = as_count(root.at("hidden_size"));
  config.hidden = as_count(root.at("intermediate_size"));
  config.heads = as_count(root.at("num_attention_heads"));
  if (config.heads == 0) root.at("num_attention_heads").fail("is zero");
  const auto uint_or = [&](std::string_view key, uint32_t fallback) {
    return static_cast<uint32_t>(root.uint_or(key, fallback, UINT32_MAX));
  };
  config.kv_heads = uint_or("num_key_value_heads", config.heads);
  const uint32_t head_dim = family.head_dim != 0 ? family.head_dim : config.emb / config.heads;
  config.head_dim = uint_or("head_dim", head_dim);
  config.vocab = as_count(root.at("vocab_size"));
  config.context = uint_or("max_position_embeddings", family.context);
  if (const auto window = sliding_window(root, family))
    config.context = std::min(config.context, *window);
  config.norm_eps = real_or(root, "rms_norm_eps", family.norm_eps, kNormEpsilons);
  config.tied_head = root.bool_or("tie_word_embeddings", false);
  read_rope(root, family, config);
  if (family.has_multipliers) read_multipliers(root, config);
  if (!family.experts.empty()) read_experts(root, family, config);
  check(config, root.path());
  config.unrotated = unrotated(root, family, config.layers);
  choose_divisors(config, 0);
  return config;
}

std::vector<Token> eos_ids_from_hf(const Json& root, uint64_t tokens) {
  std::vector<Token> ids;
  const auto field = root.find("eos_token_id");
  if (!field) return ids;
  const auto add = [&](const Json& id) {
    const uint64_t value = id.as_uint(INT32_MAX);
    if (value >= tokens) id.fail(fmt::format("{} is outside {} tokens", value, tokens));
    ids.push_back(static_cast<Token>(value));
  };
  if (field->is(Json::Type::array))
    field->for_each_element([&](size_t, const Json& id) { add(id); });
  else
    add(*field);
  return ids;
}

GenerationDefaults generation_defaults_from_hf(const Json& root) {
  GenerationDefaults defaults;
  if (const auto field = root.find("temperature"))
    defaults.temperature = static_cast<float>(field->as_double());
  if (const auto field = root.find("top_p"))
    defaults.top_p = static_cast<float>(field->as_double());
  if (const auto field = root.find("top_k")) defaults.top_k = as_count(*field);
  return defaults;
}

}  // namespace tyto
