#include "model/hf_model.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"
#include "model/damaged_files.h"
#include "model/expert_tensors.h"
#include "model/families.h"
#include "model/hf_config.h"
#include "model/q4nx_bundle.h"
#include "model/safetensors.h"
#include "model/stores/stores.h"
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
    if (!tensor.name.ends_with("norm.weight") || info(view.dtype).block_values != 1) continue;
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

  const Json root = read_json(config_path);
  model.config = config_from_hf(root);
  if (model.config.name.empty()) model.config.name = name_of(folder);
  const uint64_t tokens = model.vocabulary ? model.vocabulary->pieces.size() : model.config.vocab;
  std::vector<Token> eos = eos_ids_from_hf(root, tokens);
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
  for (const NamedTensor& tensor : model.tensors)
    if (is_quantised_tensor(tensor.name))
      refuse_quantised(folder.string(), "tensor " + printable_name(tensor.name));
  check_head(root, aliases, model);
  if (family_of_model_type(model.config.architecture)->norms_from_zero) add_one_to_norms(model);
  std::vector<NamedTensor> tensors = with_experts_together(
      model.tensors, model.config, NameStyle::hugging_face, folder.string(), model);
  add_aliases(aliases, model.config, tensors);
  bind_weights(tensors, model.config, NameStyle::hugging_face, folder.string(), model.weights);
}

}  // namespace tyto
