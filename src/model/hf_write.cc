#include "model/hf_model.h"

#include <cmath>

#include "base/error.h"
#include "base/json_value.h"
#include "model/families.h"

namespace tyto {
namespace {

const char* torch_name(DType dtype) {
  if (dtype == DType::f16) return "float16";
  if (dtype == DType::bf16) return "bfloat16";
  return "float32";
}

// The shortest decimal that reads back as the same float: 1e-05 rather than 9.99999974e-06.
double decimal(float value) {
  return std::stod(fmt::format("{}", value));
}

std::vector<double> decimals(const std::vector<float>& values) {
  std::vector<double> result;
  for (const float value : values) result.push_back(decimal(value));
  return result;
}

const std::string& text_of(const Vocabulary& vocabulary, Token id) {
  return vocabulary.pieces[static_cast<size_t>(id)];
}

JsonValue rope_scaling(const Rope& rope) {
  switch (rope.scaling) {
    case RopeScaling::none:
      return nullptr;
    case RopeScaling::linear:
      return {{"rope_type", "linear"}, {"factor", decimal(rope.factor)}};
    case RopeScaling::longrope:
      return {{"rope_type", "longrope"},
              {"short_factor", decimals(rope.short_divisors)},
              {"long_factor", decimals(rope.long_divisors)},
              {"attention_factor", decimal(rope.attention_factor)},
              {"original_max_position_embeddings", rope.original_context}};
    case RopeScaling::yarn:
      return {{"rope_type", "yarn"},
              {"factor", decimal(rope.factor)},
              {"beta_fast", decimal(rope.beta_fast)},
              {"beta_slow", decimal(rope.beta_slow)},
              {"truncate", rope.whole_band},
              {"attention_factor", decimal(rope.attention_factor)},
              {"original_max_position_embeddings", rope.original_context}};
    case RopeScaling::dynamic:
      return {{"rope_type", "dynamic"}, {"factor", decimal(rope.factor)}};
    case RopeScaling::llama3:
      break;
  }
  return {{"rope_type", "llama3"},
          {"factor", decimal(rope.factor)},
          {"low_freq_factor", decimal(rope.low_freq_factor)},
          {"high_freq_factor", decimal(rope.high_freq_factor)},
          {"original_max_position_embeddings", rope.original_context}};
}

void add_activation(const Config& config, JsonValue& root) {
  root["hidden_act"] = config.activation == Activation::gelu_tanh ? "gelu_pytorch_tanh" : "silu";
  if (config.activation == Activation::gelu_tanh) root["hidden_activation"] = root["hidden_act"];
}

void add_window(const Config& config, JsonValue& root) {
  root["sliding_window"] = config.window;
  root["use_sliding_window"] = true;
  for (uint32_t layer = 0; layer < config.layers; ++layer)
    root["layer_types"].push_back(config.is_windowed(layer) ? "sliding_attention"
                                                            : "full_attention");
  if (config.window_theta != 0) root["rope_local_base_freq"] = decimal(config.window_theta);
}

void add_layer_kinds(const Config& config, const Family& family, JsonValue& root) {
  for (uint32_t layer = 0; layer < config.layers; ++layer)
    root["layer_types"].push_back(config.attends(layer) ? std::string_view("full_attention")
                                                        : family.recurrent_type);
  if (family.recurrent != LayerKind::short_conv || config.sigmoid_routing)
    throw Error(ErrorCode::unsupported, config.name,
                "checkpoint folders of this family are read, and not written", "write a GGUF");
  root["conv_L_cache"] = config.conv_taps;
  root["conv_bias"] = false;
  root["block_auto_adjust_ff_dim"] = false;
  root["tie_embedding"] = config.tied_head;
}

void add_caps(const Config& config, JsonValue& root) {
  const auto cap = [](float value) {
    return value == 0 ? JsonValue(nullptr) : JsonValue(decimal(value));
  };
  const float scale = config.score_scale();
  root["query_pre_attn_scalar"] = std::round(1 / (scale * scale));
  root["attn_logit_softcapping"] = cap(config.score_cap);
  root["final_logit_softcapping"] = cap(config.logit_cap);
}

JsonValue pre_tokenizer(const Vocabulary& vocabulary) {
  JsonValue steps = JsonValue::array();
  for (const std::string& pattern : vocabulary.split_patterns)
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", pattern}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  steps.push_back({{"type", "ByteLevel"},
                   {"add_prefix_space", false},
                   {"trim_offsets", true},
                   {"use_regex", false}});
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

JsonValue post_processor(const Vocabulary& vocabulary) {
  if (!vocabulary.add_bos)
    return {{"type", "ByteLevel"},
            {"add_prefix_space", true},
            {"trim_offsets", false},
            {"use_regex", true}};
  const std::string& bos = text_of(vocabulary, vocabulary.bos);
  const auto special = [&](int type_id) {
    return JsonValue{{"SpecialToken", {{"id", bos}, {"type_id", type_id}}}};
  };
  const auto sequence = [](const char* id, int type_id) {
    return JsonValue{{"Sequence", {{"id", id}, {"type_id", type_id}}}};
  };
  return {{"type", "TemplateProcessing"},
          {"single", JsonValue::array({special(0), sequence("A", 0)})},
          {"pair", JsonValue::array({special(0), sequence("A", 0), special(1), sequence("B", 1)})},
          {"special_tokens",
           {{bos,
             {{"id", bos},
              {"ids", JsonValue::array({vocabulary.bos})},
              {"tokens", JsonValue::array({bos})}}}}}};
}

JsonValue added_tokens(const Vocabulary& vocabulary) {
  JsonValue list = JsonValue::array();
  for (const AddedToken& token : vocabulary.added)
    list.push_back({{"id", token.id},
                    {"content", token.text},
                    {"single_word", false},
                    {"lstrip", token.strip_left},
                    {"rstrip", token.strip_right},
                    {"normalized", false},
                    {"special", token.special}});
  return list;
}

JsonValue bpe_model(const Vocabulary& vocabulary) {
  JsonValue vocab = JsonValue::object();
  // Without a search for each name before it is added.
  JsonValue::Object& members = vocab.members();
  members.reserve(vocabulary.pieces.size());
  for (size_t id = 0; id < vocabulary.pieces.size(); ++id)
    members.emplace_back(vocabulary.pieces[id], id);
  JsonValue merges = JsonValue::array();
  for (const auto& [left, right] : vocabulary.merges)
    merges.push_back(text_of(vocabulary, left) + " " + text_of(vocabulary, right));
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", vocabulary.fuses_unknown},
          {"byte_fallback", false},
          {"ignore_merges", vocabulary.ignore_merges},
          {"vocab", std::move(vocab)},
          {"merges", std::move(merges)}};
}

}  // namespace

std::string hf_config_json(const Config& config, DType dtype, const Vocabulary& vocabulary) {
  JsonValue root;
  const Family* family = family_of_model_type(config.architecture);
  if (family != nullptr) root["architectures"] = JsonValue::array({family->class_name});
  root["model_type"] = config.architecture;
  root["hidden_size"] = config.emb;
  root["intermediate_size"] = config.hidden;
  root["num_hidden_layers"] = config.layers;
  root["num_attention_heads"] = config.heads;
  root["num_key_value_heads"] = config.kv_heads;
  root["head_dim"] = config.head_dim;
  root["vocab_size"] = config.vocab;
  root["max_position_embeddings"] = config.context;
  root[std::string(family != nullptr ? family->eps_key : Family().eps_key)] =
      decimal(config.norm_eps);
  root["rope_theta"] = decimal(config.rope.theta);
  root["rope_scaling"] = rope_scaling(config.rope);
  root["tie_word_embeddings"] = config.tied_head;
  add_activation(config, root);
  if (config.window != 0) add_window(config, root);
  if (config.has_states()) add_layer_kinds(config, *family, root);
  if (family != nullptr && family->has_caps) add_caps(config, root);
  if (family != nullptr && family->has_multipliers) {
    root["embedding_multiplier"] = decimal(config.embedding_scale);
    root["residual_multiplier"] = decimal(config.residual_scale);
    root["attention_multiplier"] = decimal(config.score_scale());
    root["logits_scaling"] = decimal(config.logit_divisor);
  }
  if (family != nullptr && family->scales_logits)
    root["logit_scale"] = decimal(1 / config.logit_divisor);
  if (family != nullptr && config.has_experts()) {
    root[std::string(family->experts)] = config.experts;
    root["num_experts_per_tok"] = config.experts_used;
    if (config.expert_hidden != config.hidden) root["moe_intermediate_size"] = config.expert_hidden;
    root["norm_topk_prob"] = config.weighs_chosen_alone;
  }
  root["attention_bias"] = config.o_bias;
  if (config.rope.rotated != 0)
    root["partial_rotary_factor"] = static_cast<double>(config.rope.rotated) / config.head_dim;
  for (const bool unrotated : config.unrotated) root["no_rope_layers"].push_back(unrotated ? 0 : 1);
  root["bos_token_id"] = vocabulary.bos >= 0 ? JsonValue(vocabulary.bos) : JsonValue(nullptr);
  root["eos_token_id"] = vocabulary.eos;
  root["torch_dtype"] = torch_name(dtype);
  return root.dump(2) + "\n";
}

std::string hf_generation_config_json(const Vocabulary& vocabulary) {
  JsonValue root;
  root["eos_token_id"] = vocabulary.eos;
  return root.dump(2) + "\n";
}

std::string hf_tokenizer_json(const Vocabulary& vocabulary) {
  TYTO_ASSERT(vocabulary.algorithm == Vocabulary::Algorithm::byte_level_bpe);
  JsonValue root;
  root["version"] = "1.0";
  root["truncation"] = nullptr;
  root["padding"] = nullptr;
  root["added_tokens"] = added_tokens(vocabulary);
  const bool nfc = vocabulary.normalizers == std::vector<Normalizer>{Normalizer::nfc};
  TYTO_ASSERT(nfc || vocabulary.normalizers.empty());
  root["normalizer"] = nfc ? JsonValue{{"type", "NFC"}} : JsonValue(nullptr);
  root["pre_tokenizer"] = pre_tokenizer(vocabulary);
  root["post_processor"] = post_processor(vocabulary);
  root["decoder"] = {{"type", "ByteLevel"},
                     {"add_prefix_space", true},
                     {"trim_offsets", true},
                     {"use_regex", true}};
  root["model"] = bpe_model(vocabulary);
  return root.dump() + "\n";
}

std::string hf_tokenizer_config_json(const Vocabulary& vocabulary, const Config& config) {
  JsonValue root;
  root["tokenizer_class"] = "PreTrainedTokenizerFast";
  root["model_max_length"] = config.context;
  root["bos_token"] =
      vocabulary.bos >= 0 ? JsonValue(text_of(vocabulary, vocabulary.bos)) : JsonValue(nullptr);
  root["eos_token"] = vocabulary.eos.empty()
                          ? JsonValue(nullptr)
                          : JsonValue(text_of(vocabulary, vocabulary.eos.front()));
  root["add_bos_token"] = vocabulary.add_bos;
  if (vocabulary.ignores_system) root["ignores_system_messages"] = true;
  if (!vocabulary.chat_template.empty()) root["chat_template"] = vocabulary.chat_template;
  if (!vocabulary.more_templates.empty()) {
    JsonValue list = JsonValue::array();
    if (!vocabulary.chat_template.empty())
      list.push_back({{"name", "default"}, {"template", vocabulary.chat_template}});
    for (const ChatSource& each : vocabulary.more_templates)
      list.push_back({{"name", each.name}, {"template", each.source}});
    root["chat_template"] = std::move(list);
  }
  return root.dump(2) + "\n";
}

}  // namespace tyto
