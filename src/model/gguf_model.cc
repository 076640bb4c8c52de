// Config and weights out of GGUF metadata and tensors.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/utf8.h"
#include "model/families.h"
#include "model/gguf.h"
#include "model/text_part.h"
#include "model/weight_table.h"
#include "text/reasoning.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/unigram.h"

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

// One number for all layers, or one for each, which is zero where a layer does not attend.
uint32_t kv_heads(const ArchitectureKeys& arch, const Family& family, Config& config) {
  const std::string key = arch.prefix + "attention.head_count_kv";
  if (!arch.keys.has_integers(key))
    return arch.count("attention.head_count_kv").value_or(config.heads);
  const std::string where = arch.keys.where(key);
  const std::vector<int64_t>& counts = *arch.keys.integers(key);
  if (counts.empty() || counts.size() != config.layers)
    fail_input(where, "has {} numbers, and there are {} layers", counts.size(), config.layers);
  const int64_t most = std::ranges::max(counts);
  std::vector<LayerKind> kinds;
  for (const int64_t count : counts) {
    if (count != 0 && count != most)
      fail_unsupported(where, "differs from layer to layer: {} and {} heads", count, most);
    if (count == 0 && family.recurrent == LayerKind::attention)
      fail_unsupported(where, "layers that do not attend, which are not supported in this family");
    kinds.push_back(count == 0 ? family.recurrent : LayerKind::attention);
  }
  set_layer_kinds(config, std::move(kinds));
  if (most < 0 || most > UINT32_MAX) fail_input(where, "{} heads", most);
  return static_cast<uint32_t>(most);
}

void read_shape(const ArchitectureKeys& arch, const Family& family, Config& config) {
  const GgufKeys& keys = arch.keys;
  config.layers = arch.required("block_count");
  if (family.recurrent == LayerKind::delta_rule) {
    const uint32_t drafting = arch.count("nextn_predict_layers").value_or(0);
    if (drafting >= config.layers)
      fail_input(keys.where(arch.prefix + "nextn_predict_layers"), "{} of {} layers", drafting,
                 config.layers);
    config.layers -= drafting;
  }
  config.emb = arch.required("embedding_length");
  // Where all layers have experts, files may leave out how wide another feed-forward would be.
  const auto width = arch.count("feed_forward_length");
  config.hidden = width || family.experts.empty() ? arch.required("feed_forward_length")
                                                  : arch.required("expert_feed_forward_length");
  config.heads = arch.required("attention.head_count");
  config.kv_heads = kv_heads(arch, family, config);
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
void read_multipliers(const ArchitectureKeys& arch, const Family& family, Config& config) {
  const auto given = [&](const char* key, float fallback) {
    const double value = arch.keys.real(arch.prefix + key).value_or(0);
    return value == 0 ? fallback : checked(value, kScales, arch.keys.where(arch.prefix + key));
  };
  config.embedding_scale = given("embedding_scale", 1);
  config.residual_scale = given("residual_scale", 1);
  config.attention_scale = given("attention.scale", 0);
  config.logit_divisor = given("logit_scale", 1);
  const std::string rope = arch.prefix + "rope.scaling.finetuned";
  if (family.rotates && !arch.keys.flag(rope).value_or(true))
    fail_unsupported(arch.keys.where(rope),
                     "false, which in this family means a model without rope");
}

void read_experts(const ArchitectureKeys& arch, const Family& family, Config& config) {
  config.experts = arch.count("expert_count").value_or(0);
  if (!config.has_experts()) {
    if (!family.experts.empty() && !family.may_be_dense)
      fail_input(arch.keys.where(arch.prefix + "expert_count"), "is missing");
    return;
  }
  if (!family.gguf_experts)
    throw Error(ErrorCode::unsupported, arch.keys.where(arch.prefix + "expert_count"),
                "a mixture of experts, which is not supported in this family",
                "take a dense model of the family");
  config.experts_used = arch.required("expert_used_count");
  config.expert_hidden = arch.count("expert_feed_forward_length").value_or(config.hidden);
  if (family.shared_expert)
    config.shared_hidden =
        arch.count("expert_shared_feed_forward_length").value_or(config.expert_hidden);
  else if (arch.count("expert_shared_count").value_or(0) > 0)
    fail_unsupported(arch.keys.where(arch.prefix + "expert_shared_count"),
                     "experts that every token takes");
  config.dense_layers = arch.count("leading_dense_block_count").value_or(0);
  if (family.sigmoid_routing) {
    constexpr uint32_t kSigmoid = 2;
    if (arch.count("expert_gating_func").value_or(kSigmoid) != kSigmoid)
      fail_unsupported(arch.keys.where(arch.prefix + "expert_gating_func"),
                       "routing by something else than sigmoids");
    config.weighs_chosen_alone = arch.keys.flag(arch.prefix + "expert_weights_norm").value_or(true);
    const double scale = arch.keys.real(arch.prefix + "expert_weights_scale").value_or(0);
    if (scale != 0)
      config.expert_scale =
          checked(scale, kScales, arch.keys.where(arch.prefix + "expert_weights_scale"));
  } else if (config.dense_layers > 0)
    fail_unsupported(arch.keys.where(arch.prefix + "leading_dense_block_count"),
                     "layers without experts beside layers with them");
}

// Files have a list, or the step of the layers that attend.
std::vector<LayerKind> recurrent_kinds(const ArchitectureKeys& arch, const Family& family,
                                       uint32_t layers) {
  const std::string key = arch.prefix + "attention.recurrent_layers";
  if (!arch.keys.has_integers(key))
    return recurrent_layers(family, layers,
                            arch.count("full_attention_interval").value_or(family.attention_step));
  const std::vector<int64_t>& list = *arch.keys.integers(key);
  if (list.size() < layers)
    fail_input(arch.keys.where(key), "has {} entries, and there are {} layers", list.size(),
               layers);
  std::vector<LayerKind> kinds;
  for (uint32_t layer = 0; layer < layers; ++layer)
    kinds.push_back(list[layer] != 0 ? family.recurrent : LayerKind::attention);
  return kinds;
}

void read_heads(const ArchitectureKeys& arch, const Family& family, Config& config) {
  if (family.recurrent == LayerKind::delta_rule && config.layers <= kMostLayers)
    set_layer_kinds(config, recurrent_kinds(arch, family, config.layers));
  config.conv_taps = arch.required("ssm.conv_kernel");
  RecurrentHeads& shape = config.recurrent;
  shape = {.key_heads = arch.required("ssm.group_count"),
           .heads = arch.required("ssm.time_step_rank"),
           .key_dim = arch.required("ssm.state_size"),
           .is_tiled = family.tiled_heads,
           .is_joint = family.joint_times};
  const uint32_t values = arch.required("ssm.inner_size");
  if (shape.heads == 0 || values % shape.heads != 0)
    fail_input(arch.keys.where(arch.prefix + "ssm.inner_size"), "{} values of {} heads", values,
               shape.heads);
  shape.head_dim = values / shape.heads;
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
  if (family.recurrent == LayerKind::delta_rule || family.recurrent == LayerKind::mamba2)
    read_heads(arch, family, config);
  if (family.recurrent == LayerKind::short_conv)
    config.conv_taps = arch.required("shortconv.l_cache");
  if (family.has_multipliers) read_multipliers(arch, family, config);
  if (family.has_caps) read_caps(arch, family, config);
  if (family.scales_logits)
    config.logit_divisor = 1 / arch.real("logit_scale", kScales).value_or(1.0f);
  config.qkv_bias |= find_tensor(gguf, "blk.0.attn_q.bias") != nullptr;
  config.choice_bias =
      find_tensor(gguf, fmt::format("blk.{}.exp_probs_b.bias", config.dense_layers)) != nullptr;
  config.tied_head = find_tensor(gguf, "output.weight") == nullptr;
  read_divisors(gguf, arch, config);
  check(config, gguf.name);
  config.unrotated = family.rotates ? unrotated_layers(config.layers, family.unrotated_step)
                                    : std::vector<bool>(config.layers, true);
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
    const uint64_t drafting = keys.integer(name + ".nextn_predict_layers").value_or(0);
    if (model.config.has_kind(LayerKind::delta_rule))
      keep_text_part(NameStyle::gguf, static_cast<uint32_t>(drafting), model);
    if (!gguf.tensors.empty())
      bind_weights(
          with_experts_together(with_recurrence_in_order(model.tensors, model.config,
                                                         NameStyle::gguf, gguf.name, model),
                                model.config, NameStyle::gguf, gguf.name, model),
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

// Vocabulary out of tokenizer.* keys.

namespace {

// Besides the ids that keys name. Some converters forgot to mark them as control tokens.
constexpr std::string_view kTurnEnds[] = {"<|eot_id|>",
                                          "<|im_end|>",
                                          "<|end|>",
                                          "<|eom_id|>",
                                          "<|endoftext|>",
                                          "<|end_of_text|>",
                                          "<end_of_turn>",
                                          "<turn|>",
                                          "<EOT>",
                                          "[EOT]",
                                          "[EOS]",
                                          "<end_of_utterance>",
                                          "<｜end▁of▁sentence｜>"};

Token token_id(const GgufKeys& keys, const char* key, size_t vocab) {
  const auto value = keys.integer(key);
  // Writers store "no such token" as the all-ones pattern of their integer.
  if (!value || *value == UINT32_MAX || *value == UINT64_MAX) return -1;
  if (*value >= vocab) fail_input(keys.where(key), "{} is outside {} tokens", *value, vocab);
  return static_cast<Token>(*value);
}

// Empty texts are unused ids. No reader can tell two others of the same text apart.
void check_distinct(const GgufKeys& keys, const Vocabulary& vocabulary) {
  const PieceIndex index(vocabulary.pieces);
  for (size_t id = 0; id < vocabulary.pieces.size(); ++id) {
    const std::string& piece = vocabulary.pieces[id];
    const Token first = index.find(piece);
    if (!piece.empty() && first != static_cast<Token>(id))
      fail_input(keys.where("tokenizer.ggml.tokens"), "tokens {} and {} are both \"{}\"", first, id,
                 printable_name(piece));
  }
}

void read_merges(const GgufKeys& keys, Vocabulary& vocabulary) {
  const char* key = "tokenizer.ggml.merges";
  const std::vector<std::string>* merges = keys.strings(key);
  if (merges == nullptr) fail_input(keys.where(key), "is missing");
  std::vector<PiecePair> pairs;
  pairs.reserve(merges->size());
  for (size_t rank = 0; rank < merges->size(); ++rank) {
    const auto pair = split_merge((*merges)[rank]);
    if (!pair)
      fail_input(fmt::format("{}[{}]", keys.where(key), rank), "\"{}\" is not two pieces",
                 printable_name((*merges)[rank]));
    pairs.push_back(*pair);
  }
  resolve_merges(vocabulary, pairs, keys.where(key));
}

void read_scores(const GgufKeys& keys, Vocabulary& vocabulary) {
  const char* key = "tokenizer.ggml.scores";
  const std::vector<double>* scores = keys.reals(key);
  if (scores == nullptr || scores->size() != vocabulary.pieces.size())
    fail_input(keys.where(key), "{} scores for {} tokens", scores == nullptr ? 0 : scores->size(),
               vocabulary.pieces.size());
  for (const double score : *scores) {
    if (!std::isfinite(score)) fail_input(keys.where(key), "a score is not finite");
    vocabulary.scores.push_back(static_cast<float>(score));
  }
}

void read_token_types(const GgufKeys& keys, Vocabulary& vocabulary) {
  const char* key = "tokenizer.ggml.token_type";
  const std::vector<int64_t>* types = keys.integers(key);
  if (types == nullptr) return;
  if (types->size() != vocabulary.pieces.size())
    fail_input(keys.where(key), "{} types for {} tokens", types->size(), vocabulary.pieces.size());
  for (size_t i = 0; i < types->size(); ++i) {
    const int64_t type = (*types)[i];
    const bool is_end = ends_turn(vocabulary.pieces[i]);
    if (type != kUnknown && type != kControl && type != kUserDefined && !is_end) continue;
    if (vocabulary.pieces[i].empty()) continue;  // would match everywhere
    AddedToken token;
    token.id = static_cast<Token>(i);
    token.text = vocabulary.pieces[i];
    token.special = type != kUserDefined || is_end;
    vocabulary.added.push_back(std::move(token));
  }
}

void read_ends(const GgufKeys& keys, Vocabulary& vocabulary) {
  const auto add = [&](Token id) {
    if (id >= 0 &&
        std::find(vocabulary.eos.begin(), vocabulary.eos.end(), id) == vocabulary.eos.end())
      vocabulary.eos.push_back(id);
  };
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.eom_token_id"})
    add(token_id(keys, key, vocabulary.pieces.size()));
  for (const AddedToken& token : vocabulary.added)
    if (token.special && ends_turn(token.text)) add(token.id);
  settle_harmony_ends(vocabulary);
}

bool flag_or(const GgufKeys& keys, const char* key, bool fallback) {
  return keys.flag(key).value_or(fallback);
}

void read_bos_and_eos(const GgufKeys& keys, Vocabulary& vocabulary, bool bos, bool eos) {
  vocabulary.add_bos = flag_or(keys, "tokenizer.ggml.add_bos_token", bos);
  vocabulary.add_eos = flag_or(keys, "tokenizer.ggml.add_eos_token", eos);
}

void read_pre_tokenized(const GgufKeys& keys, Vocabulary& vocabulary, const std::string& pre) {
  PreTokenizer rules = pre_tokenizer_by_name(pre, keys.where("tokenizer.ggml.pre"));
  vocabulary.algorithm = rules.marks_spaces ? Vocabulary::Algorithm::sentencepiece
                                            : Vocabulary::Algorithm::byte_level_bpe;
  vocabulary.split_patterns = std::move(rules.split_patterns);
  vocabulary.normalizers = std::move(rules.normalizers);
  vocabulary.ignore_merges = rules.ignore_merges;
  if (rules.marks_spaces) find_byte_tokens(vocabulary);
  read_bos_and_eos(keys, vocabulary, rules.add_bos, false);
  vocabulary.add_bos = vocabulary.add_bos || rules.always_bos;
  read_merges(keys, vocabulary);
}

void read_gpt2(const GgufKeys& keys, Vocabulary& vocabulary) {
  const std::string* named = keys.text("tokenizer.ggml.pre");
  read_pre_tokenized(keys, vocabulary, named == nullptr ? "default" : *named);
}

void read_gemma4(const GgufKeys& keys, Vocabulary& vocabulary) {
  read_pre_tokenized(keys, vocabulary, "gemma4");
}

void read_sentencepiece(const GgufKeys& keys, Vocabulary& vocabulary) {
  vocabulary.algorithm = Vocabulary::Algorithm::sentencepiece;
  vocabulary.prepend_space = flag_or(keys, "tokenizer.ggml.add_space_prefix", true);
  read_bos_and_eos(keys, vocabulary, true, false);
  read_scores(keys, vocabulary);
  find_byte_tokens(vocabulary);
  vocabulary.fuses_unknown = lacks_byte_tokens(vocabulary);
}

void read_unigram(const GgufKeys& keys, Vocabulary& vocabulary) {
  vocabulary.algorithm = Vocabulary::Algorithm::unigram;
  const char* map_key = "tokenizer.ggml.precompiled_charsmap";
  if (const std::vector<int64_t>* table = keys.integers(map_key)) {
    for (const int64_t byte : *table) {
      if (byte < INT8_MIN || byte > UINT8_MAX) fail_input(keys.where(map_key), "is not bytes");
      vocabulary.charsmap.push_back(static_cast<char>(byte));
    }
    vocabulary.normalizers.push_back(Normalizer::charsmap);
  }
  const bool merge_spaces = flag_or(keys, "tokenizer.ggml.remove_extra_whitespaces", false);
  if (merge_spaces)
    vocabulary.normalizers.insert(
        vocabulary.normalizers.end(),
        {Normalizer::trim_left, Normalizer::trim_right, Normalizer::merge_spaces});
  vocabulary.prepend_space = flag_or(keys, "tokenizer.ggml.add_space_prefix", merge_spaces);
  read_bos_and_eos(keys, vocabulary, false, true);
  read_scores(keys, vocabulary);
  find_byte_tokens(vocabulary);
}

void read_word_piece(const GgufKeys& keys, Vocabulary& vocabulary) {
  vocabulary.algorithm = Vocabulary::Algorithm::word_piece;
  const bool lower_case = flag_or(keys, "tokenizer.ggml.normalizer.lowercase", true);
  const bool strip_accents = flag_or(keys, "tokenizer.ggml.normalizer.strip_accents", lower_case);
  vocabulary.normalizers =
      bert_normalizers({.strip_accents = strip_accents, .lower_case = lower_case});
  vocabulary.split_patterns = {std::string(kWhiteSpacePattern), std::string(kPunctuationPattern)};
  read_bos_and_eos(keys, vocabulary, true, true);
  // What stands behind a text is the separator, whatever the file has as its end.
  vocabulary.add_eos = flag_or(keys, "tokenizer.ggml.add_sep_token", true);
}

// "\\n", "\\x41" and the like, which RWKV's pieces are written with since they are bytes.
std::string unescaped(std::string_view piece) {
  std::string bytes;
  for (size_t i = 0; i < piece.size(); ++i) {
    if (piece[i] != '\\' || i + 1 == piece.size()) {
      bytes.push_back(piece[i]);
      continue;
    }
    const char letter = piece[++i];
    unsigned byte = 0;
    const std::string_view hex = piece.substr(i + 1, 2);
    const bool is_hex = letter == 'x' && hex.size() == 2 &&
                        std::from_chars(hex.data(), hex.data() + 2, byte, 16).ptr == hex.data() + 2;
    if (is_hex) i += 2;
    bytes.push_back(is_hex          ? static_cast<char>(byte)
                    : letter == 'n' ? '\n'
                    : letter == 'r' ? '\r'
                    : letter == 't' ? '\t'
                                    : letter);
  }
  return bytes;
}

void read_rwkv(const GgufKeys& keys, Vocabulary& vocabulary) {
  vocabulary.algorithm = Vocabulary::Algorithm::longest_match;
  for (std::string& piece : vocabulary.pieces) piece = unescaped(piece);
  read_bos_and_eos(keys, vocabulary, false, false);
}

struct TokenizerKind {
  std::string_view name;  // tokenizer.ggml.model
  void (*read)(const GgufKeys& keys, Vocabulary& vocabulary);
};
constexpr TokenizerKind kKinds[] = {
    {"gpt2", read_gpt2},  {"llama", read_sentencepiece}, {"gemma4", read_gemma4},
    {"t5", read_unigram}, {"bert", read_word_piece},     {"rwkv", read_rwkv},
};

const TokenizerKind& kind_of(const GgufKeys& keys, const std::string& model) {
  std::string known;
  for (const TokenizerKind& kind : kKinds) {
    if (kind.name == model) return kind;
    known.append(" ").append(kind.name);
  }
  fail_unsupported(keys.where("tokenizer.ggml.model"),
                   "the tokenizer \"{}\" is not known; these are:{}", printable_name(model), known);
}

// Ids that a file leaves out because its kind of tokenizer has always had them.
void add_usual_tokens(const GgufKeys& keys, Vocabulary& vocabulary) {
  const auto piece = [&](std::string_view text) {
    const auto at = std::find(vocabulary.pieces.begin(), vocabulary.pieces.end(), text);
    return at == vocabulary.pieces.end() ? -1 : static_cast<Token>(at - vocabulary.pieces.begin());
  };
  const size_t vocab = vocabulary.pieces.size();
  if (vocabulary.algorithm == Vocabulary::Algorithm::unigram) {
    if (vocabulary.unknown < 0) vocabulary.unknown = piece("<unk>");
    if (vocabulary.eos.empty() && piece("</s>") >= 0) vocabulary.eos = {piece("</s>")};
  } else if (vocabulary.algorithm == Vocabulary::Algorithm::word_piece) {
    if (vocabulary.bos < 0) vocabulary.bos = token_id(keys, "tokenizer.ggml.cls_token_id", vocab);
    if (vocabulary.bos < 0) vocabulary.bos = piece("[CLS]");
    if (vocabulary.unknown < 0) vocabulary.unknown = piece("[UNK]");
    Token separator = token_id(keys, "tokenizer.ggml.seperator_token_id", vocab);
    if (separator < 0) separator = piece("[SEP]");
    if (separator >= 0) {
      std::erase(vocabulary.eos, separator);
      vocabulary.eos.insert(vocabulary.eos.begin(), separator);
    }
  }
}

void read_chat_templates(const Gguf& gguf, Vocabulary& vocabulary) {
  constexpr std::string_view kUsual = "tokenizer.chat_template";
  const GgufKeys keys(gguf);
  if (const std::string* source = keys.text(kUsual)) vocabulary.chat_template = *source;
  vocabulary.ignores_system = keys.flag("tyto.ignores_system_messages").value_or(false);
  for (const auto& [key, value] : gguf.metadata) {
    const std::string_view name = key;
    if (name.size() > kUsual.size() + 1 && name.starts_with(kUsual) && name[kUsual.size()] == '.')
      set_chat_template(vocabulary, name.substr(kUsual.size() + 1), *keys.text(key));
  }
}

bool contains_any(std::string_view text, std::initializer_list<std::string_view> parts) {
  return std::ranges::any_of(
      parts, [&](std::string_view part) { return text.find(part) != std::string_view::npos; });
}

// Which added tokens swallow the white space beside them: no key says it, so that readers go by the
// names of the models whose tokenizer files do.
void read_strips(const GgufKeys& keys, Vocabulary& vocabulary) {
  const auto text = [&](const char* key) {
    const std::string* value = keys.text(key);
    return value == nullptr ? std::string() : *value;
  };
  std::string name = text("general.name");
  for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  const bool phi = contains_any(name, {"phi-3", "phi3"});
  const bool mask = contains_any(text("tokenizer.ggml.pre"),
                                 {"jina-v2-de", "jina-v2-es", "jina-v2-code", "modern-bert"}) ||
                    contains_any(text("general.architecture"), {"nomic-bert-moe", "jina-bert-v3"});
  for (AddedToken& token : vocabulary.added) {
    const bool stays =
        token.text == "<unk>" || token.text == "<s>" || token.text == "<|endoftext|>";
    token.strip_right = phi && !stays;
    token.strip_left = mask && (token.text == "<mask>" || token.text == "[MASK]");
  }
}

}  // namespace

bool ends_turn(std::string_view text) {
  return std::ranges::find(kTurnEnds, text) != std::end(kTurnEnds);
}

std::optional<Vocabulary> vocabulary_from_gguf(const Gguf& gguf) {
  const GgufKeys keys(gguf);
  const std::string* model = keys.text("tokenizer.ggml.model");
  if (model == nullptr || *model == "none" || *model == "no_vocab") return std::nullopt;
  const TokenizerKind& kind = kind_of(keys, *model);
  const std::vector<std::string>* pieces = keys.strings("tokenizer.ggml.tokens");
  if (pieces == nullptr || pieces->empty())
    fail_input(keys.where("tokenizer.ggml.tokens"), "is missing or empty");

  Vocabulary vocabulary;
  vocabulary.pieces = *pieces;
  check_distinct(keys, vocabulary);
  kind.read(keys, vocabulary);
  read_token_types(keys, vocabulary);
  read_strips(keys, vocabulary);
  vocabulary.bos = token_id(keys, "tokenizer.ggml.bos_token_id", pieces->size());
  vocabulary.unknown = token_id(keys, "tokenizer.ggml.unknown_token_id", pieces->size());
  read_ends(keys, vocabulary);
  add_usual_tokens(keys, vocabulary);
  if (vocabulary.bos < 0) vocabulary.add_bos = false;
  read_chat_templates(gguf, vocabulary);
  return vocabulary;
}

}  // namespace tyto
