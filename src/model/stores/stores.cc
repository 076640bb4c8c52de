#include "model/stores/stores.h"

#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/environment.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/spelling.h"
#include "base/utf8.h"
#include "model/stores/local_models.h"
#include "model/stores/recommended_models.h"
#include "model/stores/repo_files.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;

// A user's own cache is a few folders deep; a whole disk is not what is meant.
constexpr int kDepth = 8;

// Beside the program in an installation (bin/tyto) or a source tree (build/release/tyto).
constexpr const char* kShippedBelow[] = {"../share/tyto/models/owlet", "../../models/owlet"};

}  // namespace

Listing models_below(const fs::path& folder) {
  Listing listing;
  std::map<fs::path, std::vector<std::string>> by_folder;
  for (const fs::path file : files_below(folder, kDepth, listing.remarks))
    by_folder[file.parent_path()].push_back(file.filename().string());
  for (const auto& [below, files] : by_folder)
    add_repository(below.empty() ? folder : folder / below, files, "", folder.string(), listing);
  for (LocalModel& model : listing.models) {
    model.name = model.path.string();
    model.other_names.clear();
  }
  return listing;
}

std::optional<fs::path> shipped_model() {
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  for (const char* below : kShippedBelow) {
    const fs::path folder = (program.parent_path() / below).lexically_normal();
    if (fs::exists(folder / "config.json", ignored)) return folder;
  }
  return std::nullopt;
}

std::string model_or_shipped(const std::string& named) {
  if (!named.empty()) return named;
  if (const auto folder = shipped_model()) return folder->string();
  throw Error(ErrorCode::input, "the shipped model", "is not beside the program",
              "name a model with -m");
}

namespace {

namespace fs = std::filesystem;

constexpr size_t kMostCandidates = 8;
constexpr int kRepositoryDepth = 3;

// "org/repo:Q4_K_M"; with a store also "lmstudio:publisher/repo/file.gguf", which is no path then.
struct Repository {
  std::string id;     // "org/repo"
  std::string asked;  // "Q4_K_M", "file.gguf", or empty
};

std::optional<Repository> as_repository(const std::string& given) {
  const std::string name = without_store(given);
  const size_t slash = name.find('/');
  if (slash == std::string::npos) return std::nullopt;
  const size_t end = name.find_first_of(store_of(given) == nullptr ? ":" : ":/", slash + 1);
  Repository repository{name.substr(0, end), end == std::string::npos ? "" : name.substr(end + 1)};
  return is_repo_id(repository.id) ? std::optional(repository) : std::nullopt;
}

bool has(const std::vector<std::string>& files, const char* name) {
  return std::find(files.begin(), files.end(), name) != files.end();
}

// The model in the folder of a repository's files.
fs::path model_in(const fs::path& folder, const std::string& name, const Repository& repository) {
  std::vector<std::string> remarks;
  const std::vector<std::string> files = files_below(folder, kRepositoryDepth, remarks);
  const std::string pull = fmt::format("`tyto pull {}`", without_store(name));
  try {
    const std::string first = files_of_model(files, repository.asked).front();
    return first.ends_with(".gguf") || !repository.asked.empty() ? folder / first : folder;
  } catch (const Error& error) {
    // A folder without weights may have a tokenizer, which is all that some commands need.
    const bool is_folder = has(files, "config.json") || has(files, "tokenizer.json");
    if (repository.asked.empty() && is_folder) return folder;
    if (error.code != ErrorCode::usage)
      throw Error(error.code, name, error.what(), pull + " fetches what is missing");
    std::string here;
    for (const RepoModel& model : models_of_repository(files))
      here += (here.empty() ? "" : ", ") + (model.asked.empty() ? "a checkpoint" : model.asked);
    throw Error(ErrorCode::input, name,
                fmt::format("of this repository {} is on this machine, and not what is asked for",
                            here.empty() ? "no model" : printable_line(here, 500)),
                pull + " fetches it");
  }
}

// Folders of repositories: of snapshots in the Hugging Face caches, or of LM Studio.
std::vector<fs::path> hugging_face_folders(const std::string& id) {
  std::vector<fs::path> caches = hugging_face_cache_folders();
  if (const auto cache = llama_cpp_cache_folder()) caches.push_back(*cache);
  std::string folder = "models--" + id;
  folder.replace(folder.find('/'), 1, "--");
  std::vector<fs::path> found;
  for (const fs::path& cache : caches)
    if (const fs::path snapshot = find_snapshot(cache / folder); !snapshot.empty())
      found.push_back(snapshot);
  return found;
}

std::vector<fs::path> lm_studio_repositories(const std::string& id) {
  std::vector<fs::path> found;
  if (const auto home = home_folder())
    for (const fs::path& folder : lm_studio_folders(*home))
      if (is_there(folder / id)) found.push_back(folder / id);
  return found;
}

std::optional<fs::path> find_in_repositories(const std::string& name) {
  const StoreName* store = store_of(name);
  const auto repository = as_repository(name);
  if (!repository) return std::nullopt;
  std::vector<fs::path> folders;
  if (store == nullptr || store->prefix == "hf:") folders = hugging_face_folders(repository->id);
  if (store != nullptr && store->prefix == "lmstudio:")
    folders = lm_studio_repositories(repository->id);
  if (folders.empty()) return std::nullopt;
  return model_in(folders.front(), name, *repository);
}

[[noreturn]] void fail_ambiguous(const std::string& name,
                                 const std::vector<const LocalModel*>& found) {
  const size_t shown = std::min(found.size(), kMostCandidates);
  const auto names = joined(std::vector(found.begin(), found.begin() + shown), ", ",
                            [](const LocalModel* model) { return printable_name(model->name); });
  throw Error(
      ErrorCode::usage, name, fmt::format("{} models have this name", found.size()),
      fmt::format("name one of {}{}", names,
                  shown == found.size() ? "" : fmt::format(" and {} more", found.size() - shown)));
}

// GGUF files beside one that is not there: its name may just be mistyped.
std::vector<LocalModel> files_beside(const fs::path& path) {
  std::vector<std::string> ignored;
  std::vector<LocalModel> files;
  const fs::path folder = path.parent_path();
  for (const std::string& file : files_below(folder.empty() ? "." : folder, 1, ignored))
    if (file.ends_with(".gguf"))
      files.push_back({.name = (folder / file).string(), .path = folder / file});
  return files;
}

// How to get a model that is not here.
std::string way_to_get(const std::string& name) {
  const StoreName* store = store_of(name);
  const bool is_of_a_hub = store == nullptr || store->prefix == "hf:";
  if (is_of_a_hub && as_repository(name))
    return fmt::format("to download it: tyto pull {}", without_store(name));
  if (store != nullptr && store->prefix == "ollama:")
    return fmt::format("to download it: ollama pull {}", without_store(name));
  const std::vector<std::string> known =
      store == nullptr ? recommended_names(name) : std::vector<std::string>();
  if (!known.empty())
    return fmt::format("to download {}: tyto pull {}", known.size() == 1 ? "it" : "one",
                       joined(known, ", or tyto pull "));
  return "to download one: tyto pull";
}

[[noreturn]] void fail_absent(const std::string& name, std::vector<LocalModel> models) {
  const StoreName* store = store_of(name);
  if (store != nullptr)
    std::erase_if(models,
                  [&](const LocalModel& model) { return !model.name.starts_with(store->prefix); });
  else
    for (LocalModel& file : files_beside(name)) models.push_back(std::move(file));
  const std::vector<std::string> near = nearest_models(name, models);
  const std::string hint =
      near.empty() ? ""
                   : fmt::format("most like it here: {}; ", joined(near, ", ", printable_name));
  throw Error(ErrorCode::input, name,
              store == nullptr ? "no such model here" : fmt::format("is not in {}", store->title),
              hint + way_to_get(name));
}

bool is_model_file(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return is_there(path / "config.json");
  if (!fs::is_regular_file(path, ignored)) return false;
  if (path.extension() == ".gguf") return true;
  char magic[4] = {};
  std::ifstream(path, std::ios::binary).read(magic, sizeof magic);
  return std::string_view(magic, sizeof magic) == "GGUF";
}

}  // namespace

bool is_repo_id(std::string_view name) {
  const size_t slash = name.find('/');
  const auto good = [](std::string_view part) {
    return !part.empty() && !part.starts_with('.') &&
           std::all_of(part.begin(), part.end(), [](unsigned char c) {
             return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
           });
  };
  return slash != std::string_view::npos && good(name.substr(0, slash)) &&
         good(name.substr(slash + 1)) && !name.ends_with(".gguf");
}

bool is_local_model(const std::string& name) {
  if (name.empty()) return false;
  if (is_model_file(name)) return true;
  if (name.find_first_of(" \t\r\n") != std::string::npos) return false;  // no store has such names
  const auto repository = as_repository(name);
  if (repository && store_of(name) == nullptr && !hugging_face_folders(repository->id).empty())
    return true;
  const Listing here = local_models();
  return !ModelNames(here.models).find(name).empty();
}

fs::path find_model(const std::string& name) {
  if (name.empty()) fail_input("model", "the name is empty");
  if (is_there(name)) return name;
  if (const auto path = find_in_repositories(name)) return *path;
  const Listing here = local_models();
  const std::vector<const LocalModel*> found = ModelNames(here.models).find(name);
  if (found.size() > 1) fail_ambiguous(name, found);
  if (found.empty()) fail_absent(name, here.models);
  const LocalModel& model = *found.front();
  if (!model.why_not.empty())
    throw Error(ErrorCode::input, name, model.why_not,
                model.name.starts_with("hf:")
                    ? fmt::format("`tyto pull {}` fetches the rest", without_store(model.name))
                    : "");
  return model.path;
}

namespace {

namespace fs = std::filesystem;

// The folder itself, whatever it is called; none where there is no folder.
std::pair<dev_t, ino_t> folder_id(const fs::path& path) {
  struct stat status = {};
  const bool is_folder = ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
  return is_folder ? std::pair(status.st_dev, status.st_ino) : std::pair<dev_t, ino_t>(0, 0);
}

struct Walk {
  fs::path root;
  std::vector<std::string>& remarks;
  std::vector<std::string> files = {};
  std::set<std::pair<dev_t, ino_t>> seen = {};
  bool is_full = false;

  void look_at(const fs::path& below, int depth) {
    for (const std::string& name : names_in(root / below, remarks)) {
      if (is_full) return;
      const fs::path path = below / name;
      const auto id = folder_id(root / path);
      if (id.second == 0) {
        files.push_back(path.string());
        is_full = files.size() >= kMostEntries;
      } else if (depth > 1 && seen.insert(id).second) {
        look_at(path, depth - 1);
      }
    }
  }
};

}  // namespace

std::vector<std::string> names_in(const fs::path& folder, std::vector<std::string>& remarks) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator it(folder, error);
  for (const fs::directory_iterator end; !error && it != end; it.increment(error)) {
    if (names.size() == kMostEntries) {
      remarks.push_back(fmt::format("{}: has more than {} entries; the others are left out",
                                    folder.string(), kMostEntries));
      break;
    }
    if (std::string name = it->path().filename().string(); !name.starts_with('.'))
      names.push_back(std::move(name));
  }
  const bool is_absent =
      error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
  if (error && !is_absent)
    remarks.push_back(fmt::format("{}: cannot be read: {}", folder.string(), error.message()));
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> files_below(const fs::path& folder, int depth,
                                     std::vector<std::string>& remarks) {
  Walk walk{folder, remarks};
  walk.seen.insert(folder_id(folder));
  walk.look_at("", depth);
  if (walk.is_full)
    remarks.push_back(fmt::format("{}: has more than {} files; the others are left out",
                                  folder.string(), kMostEntries));
  std::sort(walk.files.begin(), walk.files.end());
  return walk.files;
}

namespace {

namespace fs = std::filesystem;

constexpr uint64_t kLongestRef = 4096;
constexpr std::string_view kPrefix = "models--";
constexpr int kSnapshotDepth = 3;  // GGUF repositories have folders like BF16/ for large files

// "models--org--repo" -> "org/repo". A repository without an organisation has no second part.
std::string repository_name(std::string_view folder) {
  std::string name(folder.substr(kPrefix.size()));
  if (const size_t between = name.find("--"); between != std::string::npos)
    name.replace(between, 2, "/");
  return name;
}

bool has_unfinished_download(const fs::path& repository) {
  std::vector<std::string> ignored;
  const std::vector<std::string> blobs = names_in(repository / "blobs", ignored);
  return std::any_of(blobs.begin(), blobs.end(),
                     [](const std::string& name) { return name.ends_with(".incomplete"); });
}

void look_at(const fs::path& repository, Listing& listing) {
  const std::string name = "hf:" + repository_name(repository.filename().string());
  const std::string store = "Hugging Face";
  const size_t before = listing.models.size();
  const fs::path snapshot = find_snapshot(repository);
  if (!snapshot.empty())
    add_repository(snapshot, files_below(snapshot, kSnapshotDepth, listing.remarks), name, store,
                   listing);
  if (listing.models.size() == before && has_unfinished_download(repository))
    listing.models.push_back({.name = name,
                              .store = store,
                              .path = snapshot.empty() ? repository : snapshot,
                              .why_not = kUnfinished});
}

}  // namespace

fs::path find_snapshot(const fs::path& repository) {
  const fs::path ref = repository / "refs" / "main";
  std::error_code ignored;
  if (fs::exists(ref, ignored)) {
    std::string revision = read_text_file(ref, kLongestRef);
    while (!revision.empty() && std::isspace(static_cast<unsigned char>(revision.back())) != 0)
      revision.pop_back();
    if (revision.empty() || revision.starts_with('.') || revision.find('/') != std::string::npos)
      fail_input(ref.string(), "\"{}\" is not a revision", printable_name(revision));
    const fs::path snapshot = repository / "snapshots" / revision;
    return fs::exists(snapshot, ignored) ? snapshot : fs::path();
  }
  std::vector<std::string> remarks;
  const std::vector<std::string> snapshots = names_in(repository / "snapshots", remarks);
  if (snapshots.size() > 1)
    fail_input((repository / "snapshots").string(),
               "several revisions and no refs/main; give the folder of one");
  return snapshots.empty() ? fs::path() : repository / "snapshots" / snapshots.front();
}

Listing hugging_face_models(const fs::path& cache) {
  Listing listing;
  for (const std::string& folder : names_in(cache, listing.remarks)) {
    if (!folder.starts_with(kPrefix)) continue;
    try {
      look_at(cache / folder, listing);
    } catch (const Error& error) {
      listing.remarks.emplace_back(error.what());
    }
  }
  return listing;
}

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

namespace {

namespace fs = std::filesystem;

constexpr uint64_t kLongestPointer = 8192;
constexpr uint64_t kLongestSettings = 16 << 20;
constexpr int kStudioDepth = 1;

// What another tool's file says, or nothing: settings that cannot be read point nowhere.
fs::path home_pointer(const fs::path& home) try {
  std::string text = read_text_file(home / ".lmstudio-home-pointer", kLongestPointer);
  text.erase(text.find_last_not_of(" \t\r\n") + 1);
  return text;
} catch (const Error&) {
  return {};
}

fs::path downloads_folder(const fs::path& settings) try {
  return Json::parse_file(settings.string(), kLongestSettings).string_or("downloadsFolder", "");
} catch (const Error&) {
  return {};
}

}  // namespace

std::vector<fs::path> lm_studio_folders(const fs::path& home) {
  std::vector<fs::path> folders;
  const auto add = [&](const fs::path& folder) {
    if (folder.is_absolute() && std::find(folders.begin(), folders.end(), folder) == folders.end())
      folders.push_back(folder);
  };
  add(downloads_folder(home / ".config/LM Studio/settings.json"));
  for (const fs::path& its_home :
       {home_pointer(home), home / ".lmstudio", home / ".cache/lm-studio"}) {
    if (its_home.empty()) continue;
    add(downloads_folder(its_home / "settings.json"));
    add(its_home / "models");
  }
  return folders;
}

Listing lm_studio_models(const fs::path& folder) {
  Listing listing;
  for (const std::string& publisher : names_in(folder, listing.remarks))
    for (const std::string& repo : names_in(folder / publisher, listing.remarks)) {
      const fs::path repository = folder / publisher / repo;
      add_repository(repository, files_below(repository, kStudioDepth, listing.remarks),
                     "lmstudio:" + publisher + "/" + repo, "LM Studio", listing);
    }
  return listing;
}

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
