#include <algorithm>
#include <cctype>
#include <optional>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"
#include "model/stores/folder_files.h"
#include "model/stores/stores.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kLongestOllamaManifest =
    1 << 20;                       // those of models with hundreds of layers are 100 KB
constexpr int kManifestDepth = 4;  // registry, namespace, model, tag
constexpr std::string_view kUsualPlace = "registry.ollama.ai/library/";
constexpr std::string_view kUsualRegistry = "registry.ollama.ai/";
constexpr std::string_view kUsualTag = ":latest";

// "registry.ollama.ai/library/llama3.2/1b" -> "registry.ollama.ai/library/llama3.2:1b".
std::optional<std::string> whole_name(std::string manifest) {
  if (std::count(manifest.begin(), manifest.end(), '/') != kManifestDepth - 1) return std::nullopt;
  manifest[manifest.rfind('/')] = ':';
  return manifest;
}

std::string usual_name(std::string_view whole) {
  for (const std::string_view left_out : {kUsualPlace, kUsualRegistry})
    if (whole.starts_with(left_out)) return std::string(whole.substr(left_out.size()));
  return std::string(whole);
}

// A digest is the name of a file among the blobs. Anything else could lead out of their folder.
std::string blob_name(const Json& digest) {
  constexpr std::string_view kHash = "sha256:";
  constexpr size_t kDigits = 64;
  const std::string_view text = digest.as_string();
  const bool has_form = text.starts_with(kHash) && text.size() == kHash.size() + kDigits &&
                        std::all_of(text.begin() + kHash.size(), text.end(),
                                    [](unsigned char c) { return std::isxdigit(c) != 0; });
  if (!has_form)
    digest.fail(fmt::format("\"{}\" is not the digest of a blob", printable_name(text)));
  std::string name(text);
  name[kHash.size() - 1] = '-';
  return name;
}

struct Layers {
  std::vector<std::string> models;  // names of blobs
  bool has_adapter = false;
};

Layers read_layers(const fs::path& manifest) {
  Layers layers;
  const Json root = Json::parse_file(manifest.string(), kLongestOllamaManifest);
  root.at("layers").for_each_element([&](size_t, const Json& layer) {
    const std::string type = layer.string_or("mediaType", "");
    if (type == "application/vnd.ollama.image.model")
      layers.models.push_back(blob_name(layer.at("digest")));
    layers.has_adapter |= type == "application/vnd.ollama.image.adapter";
  });
  return layers;
}

// What Ollama would run differs from the one GGUF that Tyto would open.
std::string why_not(const Layers& layers) {
  if (layers.models.empty()) return "has no GGUF here, it runs elsewhere or is in parts";
  if (layers.models.size() > 1) return "has several GGUFs, which Ollama alone puts together";
  return layers.has_adapter ? "has an adapter, which Tyto would leave out" : "";
}

LocalModel read_manifest(const fs::path& folder, const std::string& manifest,
                         const std::string& whole) {
  LocalModel model;
  model.name = "ollama:" + usual_name(whole);
  model.other_names = {"ollama:" + whole};
  model.store = "Ollama";
  if (model.name.ends_with(kUsualTag))
    model.other_names.push_back(model.name.substr(0, model.name.size() - kUsualTag.size()));
  const Layers layers = read_layers(folder / "manifests" / manifest);
  const fs::path blobs = folder / "blobs";
  model.path = layers.models.empty() ? folder / "manifests" / manifest : blobs / layers.models[0];
  model.why_not = why_not(layers);
  std::error_code ignored;
  if (model.why_not.empty() && !fs::exists(model.path, ignored)) model.why_not = kUnfinished;
  measure(blobs, layers.models, model);
  return model;
}

}  // namespace

Listing ollama_models(const fs::path& folder) {
  Listing listing;
  for (const std::string& manifest :
       files_below(folder / "manifests", kManifestDepth, listing.remarks)) {
    const auto whole = whole_name(manifest);
    if (!whole) continue;
    try {
      listing.models.push_back(read_manifest(folder, manifest, *whole));
    } catch (const Error& error) {
      listing.remarks.emplace_back(error.what());
    }
  }
  return listing;
}

}  // namespace tyto
