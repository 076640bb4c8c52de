#include "model/hf_model.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"
#include "model/families.h"
#include "model/model.h"
#include "model/q4nx_bundle.h"
#include "model/safetensors.h"
#include "model/stores/stores.h"
#include "model/text_part.h"
#include "model/weight_table.h"
#include "tensor/quant.h"
#include "text/reasoning.h"
#include "text/tokenizer/tokenizer.h"

namespace tyto {
namespace {

constexpr uint64_t kLongestConfig = 16 << 20;
constexpr uint64_t kLongestTokenizer = 256 << 20;  // the largest public ones are under 40 MB
constexpr uint64_t kLongestTemplate = 4 << 20;

void merge_eos(const std::vector<Token>& ids, Vocabulary& vocabulary) {
  for (const Token id : ids)
    if (std::find(vocabulary.eos.begin(), vocabulary.eos.end(), id) == vocabulary.eos.end())
      vocabulary.eos.push_back(id);
}

constexpr const char* kHead = "lm_head.weight";

std::string read_companion(const std::filesystem::path& path, uint64_t limit) {
  std::string text = read_text_file(path, limit);
  refuse_lfs_pointer(std::as_bytes(std::span(text)), path.string());
  return text;
}

Json read_json(const std::string& path) {
  return Json::parse(read_companion(path, kLongestConfig), path);
}

// Newer checkpoints keep templates in files of their own, which then are the ones that count.
void read_template_files(const std::filesystem::path& folder, Vocabulary& vocabulary) {
  constexpr std::string_view kEnding = ".jinja";
  const auto usual = folder / "chat_template.jinja";
  const auto more = folder / "additional_chat_templates";
  if (std::filesystem::exists(usual)) {
    vocabulary.more_templates.clear();
    vocabulary.chat_template = read_companion(usual, kLongestTemplate);
  }
  std::vector<std::string> remarks;
  for (const std::string& file : files_below(more, 1, remarks))
    if (file.size() > kEnding.size() && file.ends_with(kEnding))
      set_chat_template(vocabulary, file.substr(0, file.size() - kEnding.size()),
                        read_companion(more / file, kLongestTemplate));
}

std::optional<Vocabulary> read_vocabulary(const std::filesystem::path& folder) {
  TokenizerFiles files;
  files.tokenizer_json_name = (folder / "tokenizer.json").string();
  files.tokenizer_config_name = (folder / "tokenizer_config.json").string();
  if (!std::filesystem::exists(files.tokenizer_json_name)) return std::nullopt;
  files.tokenizer_json = read_companion(files.tokenizer_json_name, kLongestTokenizer);
  if (std::filesystem::exists(files.tokenizer_config_name))
    files.tokenizer_config_json = read_companion(files.tokenizer_config_name, kLongestConfig);
  Vocabulary vocabulary = vocabulary_from_tokenizer_json(files);
  read_template_files(folder, vocabulary);
  return vocabulary;
}

std::vector<TensorAlias> map_weights(const std::filesystem::path& folder, Need need,
                                     const Progress& progress, Model& model) {
  const auto bundle = folder / kBundleFile;
  if (!std::filesystem::exists(bundle))
    return map_safetensors(folder, need == Need::weights, progress, model);
  for (const char* other : {"model.safetensors", "model.safetensors.index.json"})
    if (std::filesystem::exists(folder / other))
      throw Error(ErrorCode::input, folder.string(),
                  fmt::format("has weights both in {} and in {}", kBundleFile, other),
                  "leave one of them in the folder");
  model.format = "q4nx";
  model.files.emplace_back(bundle);
  read_q4nx_bundle(model.files.back().bytes(), bundle.string(), progress, model);
  return {};
}

bool has_tensor(const std::vector<NamedTensor>& tensors, std::string_view name) {
  return std::ranges::find(tensors, name, &NamedTensor::name) != tensors.end();
}

// A checkpoint without a head of its own is tied, unless it says otherwise.
void check_head(const Json& root, const std::vector<TensorAlias>& aliases, Model& model) {
  if (has_tensor(model.tensors, kHead) ||
      std::ranges::find(aliases, kHead, &TensorAlias::name) != aliases.end())
    return;
  if (const auto tied = root.find("tie_word_embeddings"); tied && !tied->as_bool())
    tied->fail("is false, but the checkpoint has no tensor lm_head.weight");
  model.config.tied_head = true;  // a field that is not there promises nothing
}

// A checkpoint with vision has the config of its text part inside of its own.
Json text_config_of(const Json& file) {
  const auto type = file.find("model_type");
  const auto inner = file.find("text_config");
  if (!type || !inner || family_around(type->as_string()) == nullptr) return file;
  return *inner;
}

// A snapshot in a Hugging Face cache is called by its revision, its repository by the model's name.
std::string name_of(const std::filesystem::path& folder) {
  constexpr std::string_view kRepository = "models--";
  const std::string repository = folder.parent_path().parent_path().filename().string();
  if (folder.parent_path().filename() != "snapshots" || !repository.starts_with(kRepository))
    return folder.filename().string();
  const size_t org = repository.find("--", kRepository.size());
  return repository.substr(org == std::string::npos ? kRepository.size() : org + 2);
}

// Gemma's checkpoints hold what is added to one, its GGUFs the sum, and so do we.
void add_one_to_norms(Model& model) {
  for (NamedTensor& tensor : model.tensors) {
    TensorView& view = tensor.view;
    const bool is_norm =
        tensor.name.ends_with("norm.weight") && !tensor.name.ends_with("linear_attn.norm.weight");
    if (!is_norm || info(view.dtype).block_values != 1) continue;
    std::vector<float> values(view.values());
    dequantize(view.dtype, view.bytes, values);
    for (float& value : values) value += 1.0f;
    const auto bytes = std::as_bytes(std::span(values));
    model.copies.emplace_back(bytes.begin(), bytes.end());
    view = {DType::f32, view.rows, view.cols, model.copies.back()};
  }
}

}  // namespace

void fill_model_from_folder(const std::filesystem::path& folder, Need need,
                            const Progress& progress, Model& model) {
  model.format = "safetensors";
  const std::string config_path = (folder / "config.json").string();
  const std::string generation_path = (folder / "generation_config.json").string();
  const bool has_config = std::filesystem::exists(config_path);
  if (!has_config && need == Need::weights)
    fail_input(folder.string(), "has no config.json: not a checkpoint folder");

  model.vocabulary = read_vocabulary(folder);
  if (!model.vocabulary && need == Need::vocabulary)
    throw Error(ErrorCode::input, folder.string(),
                "has no tokenizer.json (tokenizer.model alone is not read)",
                "get the model's GGUF, which has its tokenizer in it");
  if (!has_config) return;

  const Json file = read_json(config_path);
  const Json root = text_config_of(file);
  model.config = config_from_hf(root);
  if (model.config.name.empty()) model.config.name = name_of(folder);
  const uint64_t tokens = model.vocabulary ? model.vocabulary->pieces.size() : model.config.vocab;
  std::vector<Token> eos = eos_ids_from_hf(root, tokens);
  if (eos.empty()) eos = eos_ids_from_hf(file, tokens);
  if (std::filesystem::exists(generation_path)) {
    const Json generation = read_json(generation_path);
    model.defaults = generation_defaults_from_hf(generation);
    const std::vector<Token> more = eos_ids_from_hf(generation, tokens);
    eos.insert(eos.end(), more.begin(), more.end());
  }
  if (model.vocabulary) {
    merge_eos(eos, *model.vocabulary);
    settle_harmony_ends(*model.vocabulary);
    if (model.vocabulary->pieces.size() > model.config.vocab)
      fail_input(folder.string(), "tokenizer.json has {} tokens, but the embedding has {} rows",
                 model.vocabulary->pieces.size(), model.config.vocab);
  }
  const std::vector<TensorAlias> aliases = map_weights(folder, need, progress, model);
  if (model.tensors.empty()) return;
  if (model.config.has_kind(LayerKind::delta_rule))
    keep_text_part(NameStyle::hugging_face, 0, model);
  for (const NamedTensor& tensor : model.tensors)
    if (is_quantised_tensor(tensor.name))
      refuse_quantised(folder.string(), "tensor " + printable_name(tensor.name));
  check_head(root, aliases, model);
  if (family_of_model_type(model.config.architecture)->norms_from_zero) add_one_to_norms(model);
  std::vector<NamedTensor> tensors = with_experts_together(
      with_recurrence_in_order(model.tensors, model.config, NameStyle::hugging_face,
                               folder.string(), model),
      model.config, NameStyle::hugging_face, folder.string(), model);
  add_aliases(aliases, model.config, tensors);
  bind_weights(tensors, model.config, NameStyle::hugging_face, folder.string(), model.weights);
}

namespace {

const Family& find_family(const Json& root) {
  const std::string_view name = root.at("model_type").as_string();
  if (name == "gemma3")
    throw Error(ErrorCode::unsupported, root.path(),
                "model_type gemma3, a checkpoint with vision, which is not supported",
                "get the model's GGUF, which has its text part alone, or a gemma3_text checkpoint");
  const Family* family = family_of_model_type(name);
  if (family == nullptr) fail_family(root.path(), name, FamilyNames::model_types);
  return *family;
}

uint32_t as_count(const Json& field) {
  return static_cast<uint32_t>(field.as_uint(UINT32_MAX));
}

std::string_view name_of(Activation activation) {
  return activation == Activation::gelu_tanh ? "gelu_pytorch_tanh" : "silu";
}

// Features that change the arithmetic in ways Tyto does not implement.
void refuse_unsupported(const Json& root, const Family& family) {
  if (root.find("quantization_config")) refuse_quantised(root.path(), "quantization_config");
  const std::string_view activation = name_of(family.activation);
  for (const std::string_view key : {"hidden_act", "hidden_activation"})
    if (const auto field = root.find(key); field && field->as_string() != activation)
      fail_unsupported(field->path(), "{}; {} is supported", printable_name(field->as_string()),
                       activation);
  if (const auto field = root.find("use_bidirectional_attention"); field && field->as_bool())
    fail_unsupported(field->path(), "attention to what comes later");
  if (const auto field = root.find("use_qk_norm"); field && field->as_bool())
    fail_unsupported(field->path(), "LayerNorms of each head of Q and K");
  if (const auto field = root.find("mlp_bias"); field && field->as_bool())
    fail_unsupported(field->path(), "biases in the feed-forward layer");
  // In all of these architectures the flag also puts a bias on the attention's output, which is
  // gpt-oss's own.
  if (const auto field = root.find("attention_bias");
      field && field->as_bool() != family.expert_biases)
    fail_unsupported(
        field->path(), "{}",
        family.expert_biases ? "attention without its biases" : "a bias on the attention's output");
  constexpr double kGateBound = 7.0;
  if (const auto field = root.find("swiglu_limit"); field && field->as_double() != kGateBound)
    fail_unsupported(field->path(), "{}; gates are bounded to {}", field->as_double(), kGateBound);
}

// Where a config.json does not say.
constexpr float kCohereLogitScale = 0.0625f;

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

// How much rotated values grow where a context is stretched `factor` times, as yarn has it.
double yarn_growth(double factor, double weight) {
  return factor <= 1 ? 1 : 0.1 * weight * std::log(factor) + 1;
}

// By what rotated values grow, where the file does not say: two weights, or one of 1.
double yarn_attention_factor(const Json& field, double factor) {
  const auto weight = field.find("mscale"), of_all = field.find("mscale_all_dim");
  if (!weight || !of_all || weight->as_double() == 0 || of_all->as_double() == 0)
    return yarn_growth(factor, 1);
  return yarn_growth(factor, as_real(*weight, kScales)) /
         yarn_growth(factor, as_real(*of_all, kScales));
}

// The context it was trained with is the model's where nothing else is said; stretched it is the
// one that it is for.
void read_yarn(const Json& field, Config& config) {
  Rope& rope = config.rope;
  rope.scaling = RopeScaling::yarn;
  const auto original = field.find("original_max_position_embeddings");
  rope.original_context = original ? as_count(*original) : config.context;
  if (rope.original_context < 2)
    field.fail("a rope that was trained with fewer than two positions");
  const auto factor = field.find("factor");
  rope.factor =
      factor ? as_real(*factor, kRopeFactors)
             : static_cast<float>(config.context) / static_cast<float>(rope.original_context);
  rope.beta_fast = real_or(field, "beta_fast", rope.beta_fast, kRopeFactors);
  rope.beta_slow = real_or(field, "beta_slow", rope.beta_slow, kRopeFactors);
  rope.whole_band = field.bool_or("truncate", true);
  const auto given = field.find("attention_factor");
  rope.attention_factor =
      given ? as_real(*given, kRopeFactors)
            : checked(yarn_attention_factor(field, rope.factor), kRopeFactors, field.path());
  const double stretched = static_cast<double>(rope.factor) * rope.original_context;
  if (stretched > config.context && stretched < UINT32_MAX)
    config.context = static_cast<uint32_t>(stretched);
}

void read_dynamic(const Json& field, Config& config) {
  if (field.find("alpha")) fail_unsupported(field.path(), "a dynamic rope scaling with an alpha");
  config.rope.scaling = RopeScaling::dynamic;
  config.rope.factor = as_real(field.at("factor"), kRopeFactors);
  const auto original = field.find("original_max_position_embeddings");
  config.rope.original_context = original ? as_count(*original) : config.context;
}

void read_scaling(const Json& root, const Json& field, Config& config) {
  Rope& rope = config.rope;
  auto type = field.find("rope_type");
  if (!type) type = field.find("type");
  if (!type) return;
  const std::string_view name = type->as_string();
  if (name == "llama3") return read_llama3(field, rope);
  if (name == "longrope" || name == "su")  // what it was called at first
    return read_longrope(root, field, config, rope);
  if (name == "yarn") return read_yarn(field, config);
  if (name == "dynamic") return read_dynamic(field, config);
  if (name == "linear") {
    rope.scaling = RopeScaling::linear;
    rope.factor = as_real(field.at("factor"), kRopeFactors);
  } else if (name != "default") {
    throw Error(ErrorCode::unsupported, type->path(),
                fmt::format("{}; default, linear, llama3, longrope, yarn and dynamic are supported",
                            printable_name(name)),
                "where the model is meant to run without it in its first context, take it out of "
                "config.json");
  }
}

std::optional<Json> object(const Json& root, std::string_view key) {
  auto field = root.find(key);
  if (field && !field->is(Json::Type::object)) field->fail("must be an object or null");
  return field;
}

// Windowed layers have a plain rope with a base of their own, or that of the others.
void read_window_rope(const Json& root, const std::optional<Json>& own, const Family& family,
                      Config& config) {
  if (config.window == 0 || (!own && family.window_theta == 0)) return;
  float theta = real_or(root, "rope_local_base_freq", family.window_theta, kRopeThetas);
  if (own) {
    theta = real_or(*own, "rope_theta", theta, kRopeThetas);
    const auto type = own->find("rope_type");
    if (type && type->as_string() != "default")
      fail_unsupported(type->path(), "{}; windowed layers have no rope scaling",
                       printable_name(type->as_string()));
  }
  if (theta != config.rope.theta || config.rope.scaling != RopeScaling::none)
    config.window_theta = theta;
}

// Transformers 4 has rope_theta beside rope_scaling; version 5 has both inside rope_parameters,
// where there may be two of them for two types of layers.
void read_rope(const Json& root, const Family& family, Config& config) {
  Rope& rope = config.rope;
  const auto newer = object(root, "rope_parameters"), older = object(root, "rope_scaling");
  auto field = newer ? newer : older;
  std::optional<Json> own;
  if (field && field->find("full_attention")) {
    own = object(*field, "sliding_attention");
    field = object(*field, "full_attention");
  }
  auto part = root.find("partial_rotary_factor");
  if (!part && field) part = field->find("partial_rotary_factor");
  if (!part && family.rotated_part != 1)
    rope.rotated = static_cast<uint32_t>(family.rotated_part * static_cast<float>(config.head_dim));
  if (part && part->as_double() != 1.0) {
    if (!family.rotates_in_part)
      fail_unsupported(part->path(), "{}; only whole heads rotate", part->as_double());
    constexpr RealRange kParts = {1e-3, 1};
    rope.rotated = static_cast<uint32_t>(double{as_real(*part, kParts)} * config.head_dim);
    if (rope.rotated == 0) part->fail("leaves nothing of a head to rotate");
  }
  rope.theta = real_or(root, "rope_theta", family.rope_theta, kRopeThetas);
  if (field) {
    rope.theta = real_or(*field, "rope_theta", rope.theta, kRopeThetas);
    read_scaling(root, *field, config);
  }
  read_window_rope(root, own, family, config);
}

// One word for each layer.
std::vector<bool> windowed_by_types(const Json& types, uint32_t layers) {
  if (types.size() != layers)
    types.fail(fmt::format("has {} entries, and there are {} layers", types.size(), layers));
  std::vector<bool> windowed;
  types.for_each_element([&](size_t, const Json& type) {
    const std::string_view name = type.as_string();
    if (name != "sliding_attention" && name != "full_attention")
      fail_unsupported(type.path(), "{}; sliding_attention and full_attention are supported",
                       printable_name(name));
    windowed.push_back(name == "sliding_attention");
  });
  return windowed;
}

// Which layers have the window: a list says so, or the step of those that have none, or from which
// layer on there is one, which is Qwen's way.
std::vector<bool> windowed(const Json& root, const Family& family, uint32_t layers) {
  if (const auto types = root.find("layer_types")) return windowed_by_types(*types, layers);
  for (const std::string_view key : {"sliding_window_pattern", "_sliding_window_pattern"})
    if (const auto step = root.find(key)) return windowed_layers(layers, as_count(*step));
  if (family.has_window) return windowed_layers(layers, family.global_step);
  constexpr uint64_t kFirst = 28;  // what Qwen's own config has where a file does not say
  const uint64_t first = root.uint_or("max_window_layers", kFirst, UINT32_MAX);
  std::vector<bool> result;
  for (uint32_t layer = 0; layer < layers; ++layer) result.push_back(layer >= first);
  return result;
}

// The window attention slides over, where one is in force. Qwen configs carry one that
// use_sliding_window switches off; Mistral's is always meant.
void read_window(const Json& root, const Family& family, Config& config) {
  const auto window = root.find("sliding_window");
  if (!window || !root.bool_or("use_sliding_window", family.has_window)) return;
  config.window = as_count(*window);
  if (config.window == 0) window->fail("is zero");
  set_windowed(config, windowed(root, family, config.layers));
}

// Gemma's: what scores are divided by the root of, and what bounds them and the logits.
void read_caps(const Json& root, Config& config) {
  const float under = real_or(root, "query_pre_attn_scalar", 256.0f, kScales);
  if (under != static_cast<float>(config.head_dim)) config.attention_scale = 1 / std::sqrt(under);
  config.score_cap = real_or(root, "attn_logit_softcapping", 0.0f, kCaps);
  config.logit_cap = real_or(root, "final_logit_softcapping", 0.0f, kCaps);
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
  // Version 5 of Transformers writes Mixtral's name for all of them.
  const auto own = root.find(family.experts);
  const Json count = own ? *own : root.at("num_local_experts");
  config.experts = as_count(count);
  if (config.experts == 0 && family.may_be_dense) {
    config.hidden = as_count(root.at("shared_intermediate_size"));
    return;
  }
  if (config.experts == 0) count.fail("is zero");
  config.experts_used = as_count(root.at("num_experts_per_tok"));
  const auto width = root.find("moe_intermediate_size");
  config.expert_hidden = width ? as_count(*width) : config.hidden;
  config.weighs_chosen_alone = root.bool_or("norm_topk_prob", family.weighs_chosen_alone);
  if (family.sigmoid_routing) {
    config.dense_layers = as_count(root.at("num_dense_layers"));
    config.choice_bias = root.bool_or("use_expert_bias", true);
    config.expert_scale = real_or(root, "routed_scaling_factor", 1.0f, kScales);
  }
  if (!family.shared_expert) return;
  const std::string_view width_key =
      family.may_be_dense ? "shared_intermediate_size" : "shared_expert_intermediate_size";
  config.shared_hidden = as_count(root.at(width_key));
  if (config.shared_hidden == 0) root.at(width_key).fail("is zero");
}

// LFM2's configs have the width of a feed-forward layer with two matrices, from which that of one
// with three follows, unless they say that it is final.
uint32_t lfm2_hidden(const Json& root) {
  const auto given = root.find("block_ff_dim");
  uint64_t width = as_count(given ? *given : root.at("intermediate_size"));
  if (!root.bool_or("block_auto_adjust_ff_dim", true)) return static_cast<uint32_t>(width);
  width = 2 * width / 3;
  const double factor = real_or(root, "block_ffn_dim_multiplier", 1.0f, kScales);
  width = static_cast<uint64_t>(factor * static_cast<double>(width));
  const uint64_t step = root.uint_or("block_multiple_of", 256, 1u << 20);
  if (step == 0) root.at("block_multiple_of").fail("is zero");
  return static_cast<uint32_t>(std::min<uint64_t>((width + step - 1) / step * step, UINT32_MAX));
}

// A word for each layer, or in older files the numbers of those that attend.
std::vector<LayerKind> layer_kinds(const Json& root, const Family& family, uint32_t layers) {
  std::vector<LayerKind> kinds;
  if (const auto types = root.find("layer_types")) {
    types->for_each_element([&](size_t, const Json& type) {
      // As files of before Transformers 5.16 have them.
      const bool is_older = family.recurrent == LayerKind::mamba2;
      const std::string_view given = type.as_string();
      const std::string_view name = is_older && given == "mamba"       ? family.recurrent_type
                                    : is_older && given == "attention" ? "full_attention"
                                                                       : given;
      if (name != family.recurrent_type && name != "full_attention")
        fail_unsupported(type.path(), "{}; full_attention and {} are supported",
                         printable_name(name), family.recurrent_type);
      kinds.push_back(name == family.recurrent_type ? family.recurrent : LayerKind::attention);
    });
    if (kinds.size() != layers)
      types->fail(fmt::format("has {} entries, and there are {} layers", kinds.size(), layers));
    return kinds;
  }
  if (family.attention_step != 0)
    return recurrent_layers(family, layers,
                            static_cast<uint32_t>(root.uint_or("full_attention_interval",
                                                               family.attention_step, UINT32_MAX)));
  kinds.assign(layers, family.recurrent);
  root.at("full_attn_idxs").for_each_element([&](size_t, const Json& index) {
    const uint64_t layer = index.as_uint(UINT32_MAX);
    if (layer >= layers) index.fail(fmt::format("is not one of {} layers", layers));
    kinds[layer] = LayerKind::attention;
  });
  return kinds;
}

// What a config.json of Qwen3.5 does not say is what Transformers has for it.
void read_delta_rule(const Json& root, const Family& family, Config& config) {
  const auto count = [&](std::string_view key, uint32_t usual) {
    return static_cast<uint32_t>(root.uint_or(key, usual, UINT32_MAX));
  };
  config.conv_taps = count("linear_conv_kernel_dim", 4);
  config.recurrent = {.key_heads = count("linear_num_key_heads", 16),
                      .heads = count("linear_num_value_heads", 32),
                      .key_dim = count("linear_key_head_dim", 128),
                      .head_dim = count("linear_value_head_dim", 128),
                      .is_joint = family.joint_times};
}

// Version 5 of Transformers writes {"__float__": "Infinity"} for what JSON has no number for.
float time_limit(const Json& field, float fallback) {
  if (field.is(Json::Type::object)) return fallback;
  return checked(field.as_double(), {0, 1e30}, field.path());
}

void read_mamba2(const Json& root, Config& config) {
  const auto count = [&](std::string_view key, uint32_t usual) {
    return static_cast<uint32_t>(root.uint_or(key, usual, UINT32_MAX));
  };
  config.conv_taps = count("mamba_d_conv", 4);
  RecurrentHeads& shape = config.recurrent;
  shape = {.key_heads = count("mamba_n_groups", 1),
           .heads = count("mamba_n_heads", 128),
           .key_dim = count("mamba_d_state", 256)};
  const uint64_t values = uint64_t{count("mamba_expand", 2)} * config.emb;
  const auto width = root.find("mamba_d_head");
  const bool is_given = width && !width->is(Json::Type::string);
  if (shape.heads == 0 || values % shape.heads != 0)
    root.fail(fmt::format("{} values of recurrent layers in {} heads", values, shape.heads));
  shape.head_dim = is_given ? as_count(*width) : static_cast<uint32_t>(values / shape.heads);
  if (uint64_t{shape.head_dim} * shape.heads != values)
    root.fail(fmt::format("{} heads of {} values in recurrent layers of {}", shape.heads,
                          shape.head_dim, values));
  if (!root.bool_or("mamba_conv_bias", true))
    fail_unsupported(root.at("mamba_conv_bias").path(), "convolutions without biases");
  if (root.bool_or("mamba_proj_bias", false))
    fail_unsupported(root.at("mamba_proj_bias").path(), "biases of the projections");
  if (const auto kind = root.find("position_embedding_type"); kind && kind->as_string() == "rope")
    fail_unsupported(kind->path(), "rope in a model with recurrent layers");
  if (const auto limits = root.find("time_step_limit"))
    limits->for_each_element([&](size_t index, const Json& limit) {
      if (index == 0) config.least_time = time_limit(limit, config.least_time);
      if (index == 1) config.most_time = time_limit(limit, config.most_time);
    });
}

void read_layer_kinds(const Json& root, const Family& family, Config& config) {
  if (config.layers > kMostLayers) return;  // check() refuses it
  set_layer_kinds(config, layer_kinds(root, family, config.layers));
  if (family.recurrent == LayerKind::delta_rule) return read_delta_rule(root, family, config);
  if (family.recurrent == LayerKind::mamba2) return read_mamba2(root, config);
  config.conv_taps = as_count(root.at("conv_L_cache"));
  if (const auto bias = root.find("conv_bias"); bias && bias->as_bool())
    fail_unsupported(bias->path(), "convolutions with biases");
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

bool is_quantised_tensor(std::string_view name) {
  return name.ends_with(".qweight");
}

void refuse_quantised(const std::string& path, const std::string& sign) {
  throw Error(ErrorCode::unsupported, path,
              fmt::format("a quantised checkpoint, which Tyto does not read ({})", sign),
              "get the model's GGUF as Q4_K_M or Q8_0, or the checkpoint it was made of");
}

namespace {

// Where all layers have experts, files may leave out how wide another feed-forward would be.
uint32_t hidden_of(const Json& root, const Family& family) {
  const auto width = root.find("intermediate_size");
  const bool may_lack = !width && !family.experts.empty() && root.find("moe_intermediate_size");
  return as_count(may_lack ? root.at("moe_intermediate_size") : root.at("intermediate_size"));
}

}  // namespace

Config config_from_hf(const Json& root) {
  const Family& family = find_family(root);
  refuse_unsupported(root, family);
  Config config;
  config.architecture = family.model_type;
  config.rope.layout = family.hf_layout;
  config.name = root.string_or("_name_or_path", "");
  config.layers = as_count(root.at("num_hidden_layers"));
  config.emb = as_count(root.at("hidden_size"));
  apply(family, config);
  config.hidden = family.recurrent == LayerKind::short_conv && family.experts.empty()
                      ? lfm2_hidden(root)
                      : hidden_of(root, family);
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
  config.norm_eps = real_or(root, family.eps_key, family.norm_eps, kNormEpsilons);
  const bool is_tied = family.recurrent == LayerKind::short_conv;  // unless it says otherwise
  config.tied_head = root.bool_or("tie_word_embeddings", root.bool_or("tie_embedding", is_tied));
  if (config.layers > 0 && config.layers <= kMostLayers) read_window(root, family, config);
  read_rope(root, family, config);
  if (family.has_multipliers) read_multipliers(root, config);
  if (family.has_caps) read_caps(root, config);
  if (family.scales_logits)
    config.logit_divisor = 1 / real_or(root, "logit_scale", kCohereLogitScale, kScales);
  if (!family.experts.empty()) read_experts(root, family, config);
  if (family.recurrent != LayerKind::attention) read_layer_kinds(root, family, config);
  check(config, root.path());
  config.unrotated = family.rotates ? unrotated(root, family, config.layers)
                                    : std::vector<bool>(config.layers, true);
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
