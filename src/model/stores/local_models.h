// All models on this machine, and what they may be called.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tyto {

// Models that other tools have left on this machine, as far as names and sizes go: nothing is
// opened but small manifests. What stores hold is data from elsewhere: links may lead nowhere,
// names may be anything, and a folder may have a million entries.

struct LocalModel {
  std::string name = {};                      // "ollama:llama3.2:1b"; `-m` takes it
  std::vector<std::string> other_names = {};  // which mean it, too
  std::string store = {};                     // "Ollama"
  std::filesystem::path path = {};            // for open_model
  uint64_t bytes = 0;                         // its files'
  std::string why_not = {};                   // it cannot be opened as it lies; empty: it can
};

// What is said of a model that is there in part.
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

// The models of every store, and below `folders`. The first found of two with one name counts, as
// for the tools themselves.
Listing local_models(const std::vector<std::filesystem::path>& folders = {});

// Where a name belongs that begins so: "ollama:llama3.2" to Ollama's store.
struct StoreName {
  std::string_view prefix;  // "ollama:"
  std::string_view title;   // "Ollama's store"
};
// The store that a name is of, or none: a path, a repository, the end of a name.
const StoreName* store_of(std::string_view name);
std::string without_store(std::string_view name);  // "ollama:llama3.2:1b" -> "llama3.2:1b"

// Names and ends of names to models. A name ends behind its store or behind a slash:
// "hf:org/repo:Q4_K_M" is also "org/repo:Q4_K_M" and "repo:Q4_K_M". Case and ".gguf" do not matter.
class ModelNames {
 public:
  explicit ModelNames(const std::vector<LocalModel>& models);  // which must outlive it

  // Those that a name may mean; several: it is ambiguous. Where no model has the name, it may be
  // short for some (is_short_for); of several types of one repository the usual one is meant.
  std::vector<const LocalModel*> find(std::string_view name) const;
  bool has(std::string_view name) const;  // as it is, and not only in short
  // The shortest end of the model's name that means it alone.
  std::string shortest(const LocalModel& model) const;

 private:
  std::vector<const LocalModel*> find_in_short(std::string_view name) const;
  const std::vector<LocalModel>& models_;
  std::map<std::string, std::vector<const LocalModel*>, std::less<>> ends_;
};

// At most three, as `tyto models` shows them, whose names are most like one that is none, the
// likest first.
std::vector<std::string> nearest_models(std::string_view name,
                                        const std::vector<LocalModel>& models);

// Short names of models: what people type who know a model from Ollama or by word of mouth.

// "llama3.2", "llama3.2:1b" and "llama-3.2-1b" are short for
// "bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M", and "llama3.2" is short for "ollama:llama3.2:1b":
// the short name is the beginning of the model's own name, without its publisher. Case, hyphens,
// underscores and colons do not matter. The rest of the name may be a size, a date, a kind of
// training, the format and a tag only, so "phi4" is not short for "Phi-4-mini".
bool is_short_for(std::string_view short_name, std::string_view name);

}  // namespace tyto
