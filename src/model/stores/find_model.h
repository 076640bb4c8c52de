// What the user gave to -m.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace tyto {

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

}  // namespace tyto
