#include <algorithm>
#include <map>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "model/stores/folder_files.h"
#include "model/stores/repo_files.h"
#include "model/stores/stores.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kLongestManifest = 16 << 20;  // they repeat what the hub knows of the GGUF
constexpr std::string_view kManifest = "manifest=", kJson = ".json";
constexpr std::string_view kInProgress = ".downloadInProgress";
constexpr std::string_view kGguf = ".gguf";

// What a manifest says of a file: the repository's name and the tag it was asked for by.
using Titles = std::map<std::string, std::string>;

// "manifest=org=repo=Q4_K_M.json" names a file of the repository, which is kept as org_repo_FILE.
void read_manifest(const fs::path& cache, const std::string& file, Titles& titles) {
  std::string title = file.substr(kManifest.size(), file.size() - kManifest.size() - kJson.size());
  const size_t repo = title.find('='), tag = title.rfind('=');
  if (repo == std::string::npos || repo == tag) return;
  const Json root = Json::parse_file((cache / file).string(), kLongestManifest);
  const auto gguf = root.find("ggufFile");
  if (!gguf) return;
  title[repo] = '/';
  title[tag] = ':';
  std::string kept = title.substr(0, tag) + "/" + gguf->string_or("rfilename", "");
  std::replace(kept.begin(), kept.end(), '/', '_');
  titles.emplace(std::move(kept), std::move(title));
}

Titles read_manifests(const fs::path& cache, const std::vector<std::string>& files,
                      std::vector<std::string>& remarks) {
  Titles titles;
  for (const std::string& file : files) {
    if (!file.starts_with(kManifest) || !file.ends_with(kJson)) continue;
    try {
      read_manifest(cache, file, titles);
    } catch (const Error& error) {
      remarks.emplace_back(error.what());
    }
  }
  return titles;
}

}  // namespace

Listing llama_cpp_models(const fs::path& cache) {
  Listing listing;
  const std::string store = "llama.cpp", prefix = "llama.cpp:";
  const std::vector<std::string> files = files_below(cache, 1, listing.remarks);
  const Titles titles = read_manifests(cache, files, listing.remarks);
  for (const RepoModel& found : models_of_repository(files)) {
    if (found.asked.empty()) continue;  // a checkpoint: not what llama.cpp keeps here
    const std::string& file = found.files.front();
    LocalModel model;
    model.name = prefix + file.substr(0, file.size() - kGguf.size());
    model.store = store;
    model.path = cache / file;
    if (!found.missing.empty()) model.why_not = "incomplete, " + found.missing;
    if (const auto title = titles.find(file); title != titles.end()) {
      model.other_names.push_back(model.name);
      model.name = prefix + title->second;
    }
    measure(cache, found.files, model);
    listing.models.push_back(std::move(model));
  }
  for (const std::string& file : files)
    if (file.ends_with(kInProgress))
      listing.models.push_back({.name = prefix + file.substr(0, file.size() - kInProgress.size()),
                                .store = store,
                                .path = cache / file,
                                .why_not = kUnfinished});
  return listing;
}

}  // namespace tyto
