// Models that other tools have left on this machine, as far as names and sizes go: nothing is
// opened but small manifests. What stores hold is data from elsewhere: links may lead nowhere,
// names may be anything, and a folder may have a million entries.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tyto {

struct LocalModel {
  std::string name = {};                      // "ollama:llama3.2:1b"; `-m` takes it
  std::vector<std::string> other_names = {};  // which mean it, too
  std::string store = {};                     // "Ollama"
  std::filesystem::path path = {};            // for open_model
  uint64_t bytes = 0;                         // of its files
  std::string why_not = {};                   // it cannot be opened as it lies; empty: it can
};

// Of what is there in part.
constexpr const char* kUnfinished = "incomplete, the download was not finished";

struct Listing {
  std::vector<LocalModel> models;
  std::vector<std::string> remarks;  // what could not be looked at, and why
};

// The models among the files of one repository: "hf:org/repo" and "hf:org/repo:Q4_K_M". `files` are
// relative to `folder`.
void add_repository(const std::filesystem::path& folder, const std::vector<std::string>& files,
                    const std::string& name, const std::string& store, Listing& listing);

// Sets the bytes, and `why_not` where one of the files is none.
void measure(const std::filesystem::path& folder, const std::vector<std::string>& files,
             LocalModel& model);

}  // namespace tyto
