#include "model/description.h"

#include <system_error>

#include "base/json.h"
#include "model/hf_config.h"
#include "model/model.h"
#include "model/q4nx_bundle.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kLongestConfig = 16 << 20;

ModelDescription describe_bundle(const fs::path& folder) {
  ModelDescription description;
  description.config =
      config_from_hf(Json::parse_file((folder / "config.json").string(), kLongestConfig));
  description.type = "q4nx";
  std::error_code ignored;
  description.weight_bytes = fs::file_size(folder / kBundleFile);
  description.has_tokenizer = fs::exists(folder / "tokenizer.json", ignored);
  return description;
}

}  // namespace

ModelDescription describe_model(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_regular_file(path / kBundleFile, ignored)) return describe_bundle(path);
  const Model model = open_model(path);
  return {model.config, std::string(info(main_weight_type(model)).name), model.weight_bytes(),
          model.vocabulary.has_value()};
}

}  // namespace tyto
