#include "model/description.h"

#include <array>
#include <cmath>
#include <system_error>

#include "base/json.h"
#include "model/gguf.h"
#include "model/hf_config.h"
#include "model/model.h"
#include "model/q4nx_bundle.h"
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

}  // namespace tyto
