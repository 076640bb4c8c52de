// The tools whose models are found, one reader each. Every reader takes the folder to look at; a
// folder that is not there holds nothing.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/stores/local_models.h"

namespace tyto {

// What the user gave to -m.

// The path that open_model takes, of one of
// - a file or folder that exists;
// - "org/repo" or "org/repo:Q4_K_M", a repository in a Hugging Face cache;
// - a name with its store: "hf:org/repo", "ollama:llama3.2:1b", "lmstudio:publisher/repo/file";
// - any name, or end of a name, that one of local_models() alone has.
// Never downloads. The Error for an absent model names those that are most like it and says how to
// get one; that for an ambiguous name lists what it may mean.
std::filesystem::path find_model(const std::string& name);

// Whether find_model() would take it for a model: a GGUF file, a checkpoint folder, a repository in
// a cache, or a name that one of local_models() has. A word of a text is rarely any of these.
bool is_local_model(const std::string& name);

// "meta-llama/Llama-3.2-1B-Instruct": what a hub would know.
bool is_repo_id(std::string_view name);

// What is in folders that other tools fill: bounded, and never an Error.

// A folder with more entries is looked at so far; as many files, below all folders of a walk.
constexpr size_t kMostEntries = 100'000;

// Names of what lies in a folder, sorted; hidden ones are left out. One that is not there has
// nothing; that one cannot be read, or has too many entries, goes to `remarks`.
std::vector<std::string> names_in(const std::filesystem::path& folder,
                                  std::vector<std::string>& remarks);

// Relative paths of all that is no folder, sorted, `depth` folders deep: of 1 in the folder itself.
// Links to folders are followed, each folder once. Links to files, pipes and what leads nowhere are
// among the paths.
std::vector<std::string> files_below(const std::filesystem::path& folder, int depth,
                                     std::vector<std::string>& remarks);

// Folders like models--org--repo, with refs/main, snapshots/REVISION and blobs that the files of a
// snapshot link to. Models of the revision that refs/main names, as "hf:org/repo".
Listing hugging_face_models(const std::filesystem::path& cache);

// The snapshot of a repository: the one that refs/main names, or the only one there is. Empty when
// there is none. An Error where several are there, or refs/main is no revision.
std::filesystem::path find_snapshot(const std::filesystem::path& repository);

// manifests/REGISTRY/NAMESPACE/MODEL/TAG, whose layer of the model is blobs/sha256-…; as
// "ollama:MODEL:TAG", "ollama:NAMESPACE/MODEL:TAG" or, of another registry, with its name.
Listing ollama_models(const std::filesystem::path& folder);

// GGUF files beside each other: ORG_REPO_FILE.gguf, as "llama.cpp:ORG_REPO_FILE", or where a
// manifest=ORG=REPO=TAG.json names one, "llama.cpp:ORG/REPO:TAG". What newer versions write is a
// Hugging Face cache.
Listing llama_cpp_models(const std::filesystem::path& cache);

// PUBLISHER/REPO/FILE, as "lmstudio:PUBLISHER/REPO" and "lmstudio:PUBLISHER/REPO:Q4_K_M".
Listing lm_studio_models(const std::filesystem::path& folder);
// Where LM Studio keeps models, as its settings in this home say.
std::vector<std::filesystem::path> lm_studio_folders(const std::filesystem::path& home);

// GGUF files and checkpoint folders in any folder and some way below it; their names are paths.
Listing models_below(const std::filesystem::path& folder);

// The folder of the model that ships with Tyto, beside the program; none where it is not there.
std::optional<std::filesystem::path> shipped_model();
// What was named, or that folder; an Error where there is neither.
std::string model_or_shipped(const std::string& named);

}  // namespace tyto
