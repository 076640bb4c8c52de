// The tools whose models are found, one reader each. Every reader takes the folder to look at; a
// folder that is not there holds nothing.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "model/stores/local_model.h"

namespace tyto {

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
