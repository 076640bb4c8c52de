#include "model/stores/find_model.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <optional>
#include <system_error>
#include <vector>

#include "base/environment.h"
#include "base/error.h"
#include "base/file.h"
#include "base/joined.h"
#include "base/printable.h"
#include "model/stores/folder_files.h"
#include "model/stores/local_models.h"
#include "model/stores/repo_files.h"
#include "model/stores/stores.h"

namespace tyto {
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

}  // namespace tyto
