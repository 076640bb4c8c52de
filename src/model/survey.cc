#include "model/survey.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/printable.h"
#include "model/families.h"
#include "model/gguf.h"
#include "model/gguf_metadata.h"
#include "model/hf_config.h"
#include "model/safetensors.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kLongestSurveyed = 16 << 20;
constexpr size_t kLongestValue = 60;

std::string cut(std::string text) {
  if (text.size() <= kLongestValue) return text;
  text.resize(kLongestValue);
  return text + "...";
}

std::string value_text(const GgufValue& value) {
  return std::visit(
      [](const auto& held) -> std::string {
        using Held = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<Held, std::string>)
          return cut(held);
        else if constexpr (std::is_arithmetic_v<Held>)
          return fmt::format("{}", held);
        else
          return fmt::format("{} values", held.size());
      },
      value.value);
}

// One that refuses the model says what it lacks; one that finds it damaged says so to the user.
void add_refusal(const std::function<void()>& read, const std::string& file, ModelSurvey& survey) {
  try {
    read();
  } catch (const Error& error) {
    if (error.code != ErrorCode::unsupported) return;
    std::string what = error.what();
    if (what.starts_with(file + ": ")) what.erase(0, file.size() + 2);
    if (std::ranges::find(survey.missing, what) == survey.missing.end())
      survey.missing.push_back(what);
  }
}

void add_tensors(const std::vector<StoredTensor>& stored,
                 const std::function<bool(const StoredTensor&)>& is_read, ModelSurvey& survey) {
  std::map<std::string, size_t> foreign;
  for (const StoredTensor& tensor : stored) {
    if (!is_read(tensor)) ++foreign[tensor.type];
    survey.tensors.push_back({tensor.name, tensor.type, tensor.shape, tensor.bytes.size()});
  }
  for (const auto& [type, count] : foreign)
    survey.missing.push_back(fmt::format("a reader of weights that are {}, as {} tensor{}", type,
                                         count, count == 1 ? " is" : "s are"));
}

void survey_gguf(const fs::path& path, ModelSurvey& survey) {
  const MappedFile file(path);
  std::vector<StoredTensor> stored;
  const Gguf gguf = parse_gguf_header(file.bytes(), path.string(), stored);
  const GgufKeys keys(gguf);
  survey.format = fmt::format("gguf v{}", gguf.version);
  if (const std::string* name = keys.text("general.architecture")) survey.architecture = *name;
  for (const auto& [key, value] : gguf.metadata)
    survey.metadata.emplace_back(key, value_text(value));
  if (!survey.architecture.empty())
    add_refusal([&] { check_architecture(gguf); }, path.string(), survey);
  const auto is_read = [](const StoredTensor& tensor) {
    return dtype_from_name(tensor.type).has_value();
  };
  add_tensors(stored, is_read, survey);
  // Without tensors, so that what the config and the tokenizer ask for is found whatever their
  // types are.
  Model model;
  add_refusal([&] { fill_model_from_gguf(gguf, Need::vocabulary, model); }, path.string(), survey);
  add_refusal([&] { vocabulary_from_gguf(gguf); }, path.string(), survey);
}

void survey_folder(const fs::path& folder, ModelSurvey& survey) {
  survey.format = "safetensors";
  const std::string config = (folder / "config.json").string();
  const Json root = Json::parse_file(config, kLongestSurveyed);
  survey.architecture = root.string_or("model_type", "");
  root.for_each_member([&](std::string_view key, const Json& value) {
    survey.metadata.emplace_back(key, cut(value.text()));
  });
  if (family_of_model_type(survey.architecture) == nullptr)
    add_refusal([&] { fail_family(config, survey.architecture, FamilyNames::model_types); }, config,
                survey);
  if (const auto quantised = root.find("quantization_config"))
    survey.missing.push_back(
        fmt::format("a reader of quantised checkpoints ({})",
                    printable_name(quantised->string_or("quant_method", "quantization_config"))));
  else
    add_refusal([&] { config_from_hf(root); }, config, survey);
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  std::ranges::sort(files);
  for (const fs::path& path : files) {
    const MappedFile file(path);
    add_tensors(
        stored_tensors(file.bytes(), path.string()),
        [](const StoredTensor& tensor) { return is_weight_type(tensor.type); }, survey);
  }
  const auto found =
      std::ranges::find_if(survey.tensors, is_quantised_tensor, &SurveyedTensor::name);
  if (!root.find("quantization_config") && found != survey.tensors.end())
    survey.missing.push_back(
        fmt::format("a reader of quantised checkpoints (tensor {})", printable_name(found->name)));
}

}  // namespace

ModelSurvey survey_model(const fs::path& path) {
  ModelSurvey survey;
  survey.path = path;
  std::error_code error;
  if (fs::is_directory(path, error))
    survey_folder(path, survey);
  else
    survey_gguf(path, survey);
  return survey;
}

}  // namespace tyto
