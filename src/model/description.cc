#include "model/description.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <system_error>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"
#include "model/families.h"
#include "model/gguf.h"
#include "model/hf_model.h"
#include "model/model.h"
#include "model/q4nx_bundle.h"
#include "model/safetensors.h"
#include "model/weight_table.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kLongestDescribed = 16 << 20;
constexpr const char* kQ4nx = "q4nx";

// [general.file_type]; empty: types of files that are written no more.
constexpr std::array<std::string_view, 39> kFileTypes = {
    "f32",    "f16",    "q4_0",  "q4_1",    "",       "",       "",       "q8_0",
    "q5_0",   "q5_1",   "q2_k",  "q3_k_s",  "q3_k_m", "q3_k_l", "q4_k_s", "q4_k_m",
    "q5_k_s", "q5_k_m", "q6_k",  "iq2_xxs", "iq2_xs", "q2_k_s", "iq3_xs", "iq3_xxs",
    "iq1_s",  "iq4_nl", "iq3_s", "iq3_m",   "iq2_s",  "iq2_m",  "iq4_xs", "iq1_m",
    "bf16",   "",       "",      "",        "tq1_0",  "tq2_0",  "mxfp4"};

std::string size_text(uint64_t count, uint64_t active) {
  if (active == count) return count_text(count);
  return fmt::format("{}.A{}", count_text(count), count_text(active));
}

std::string name_of(const Config& config, const fs::path& path) {
  if (!config.name.empty()) return config.name;
  const fs::path place = path.lexically_normal();
  return (place.has_filename() ? place : place.parent_path()).filename().string();
}

uint64_t count_of(const Config& config) {
  uint64_t count = 0;
  for (const WeightSpec& spec : weight_specs(config, NameStyle::gguf))
    count += (spec.is_vector() ? 1 : spec.rows) * spec.cols;
  return count;
}

ModelDescription describe_bundle(const fs::path& folder) {
  ModelDescription description;
  description.config =
      config_from_hf(Json::parse_file((folder / "config.json").string(), kLongestDescribed));
  description.name = name_of(description.config, folder);
  description.size = count_text(count_of(description.config));
  description.type = description.main_type = kQ4nx;
  std::error_code ignored;
  description.weight_bytes = fs::file_size(folder / kBundleFile);
  description.has_tokenizer = fs::exists(folder / "tokenizer.json", ignored);
  return description;
}

}  // namespace

std::string count_text(uint64_t count) {
  struct Unit {
    double one;
    char letter;
    double most_decimal;  // from here on whole numbers
  };
  constexpr Unit kUnits[] = {
      {1e12, 'T', 9.95}, {1e9, 'B', 99.95}, {1e6, 'M', 9.95}, {1e3, 'K', 9.95}};
  const auto values = static_cast<double>(count);
  for (const Unit& unit : kUnits) {
    // What rounds to a thousand of the unit below is one of this.
    if (values < 0.9995 * unit.one) continue;
    const double in_units = values / unit.one;
    return fmt::format("{:.{}f}{}", in_units, in_units < unit.most_decimal ? 1 : 0, unit.letter);
  }
  return std::to_string(count);
}

std::optional<std::string_view> file_type_name(uint64_t file_type) {
  if (file_type >= kFileTypes.size() || kFileTypes[file_type].empty()) return std::nullopt;
  return kFileTypes[file_type];
}

std::string weight_type(std::optional<uint64_t> file_type, DType main_type) {
  const auto own = file_type ? file_type_name(*file_type) : std::nullopt;
  const bool says_quantised = own && *own != "f32" && *own != "f16" && *own != "bf16";
  const bool is_quantised = info(main_type).block_values > 1;
  return std::string(says_quantised && is_quantised ? *own : info(main_type).name);
}

ModelDescription describe(const Model& model) {
  ModelDescription description{.config = model.config,
                               .name = name_of(model.config, model.path),
                               .size = size_text(model.parameters(), model.active_parameters()),
                               .type = {},
                               .main_type = {},
                               .weight_bytes = model.weight_bytes(),
                               .has_tokenizer = model.vocabulary.has_value()};
  if (!model.has_weights()) return description;
  const DType main_type = main_weight_type(model);
  const bool is_bundle = model.format == kQ4nx;
  description.main_type = is_bundle ? kQ4nx : info(main_type).name;
  description.type = is_bundle ? kQ4nx : weight_type(model.file_type, main_type);
  return description;
}

ModelDescription describe_model(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_regular_file(path / kBundleFile, ignored)) return describe_bundle(path);
  return describe(open_model(path));
}

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
