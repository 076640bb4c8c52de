// --prompt-cache FILE of run and chat: what the model has computed of a prompt, kept between
// starts.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/atomic_file.h"
#include "base/file.h"
#include "engine/prompt_cache_file.h"

namespace tyto {

class Engine;
struct CommandLine;
struct EngineOptions;

struct PromptCacheFlags {
  std::string file;
  bool read_only = false;
};
void add_prompt_cache_flags(CommandLine& command, PromptCacheFlags& flags);

// One file, read before the first prompt and written after the last.
class PromptCache {
 public:
  // Made before any work: a file that is no prompt cache is an Error, and never replaced.
  explicit PromptCache(const PromptCacheFlags& flags);

  // A file that is of no use to this engine is a note, and the whole prompt runs.
  void load(Engine& engine, const EngineOptions& options);
  // What the caches hold of `tokens`, unless the file has all of it already.
  void save(Engine& engine, std::span<const Token> tokens);

 private:
  std::string path_;  // empty: none is wanted
  MappedFile mapped_;
  std::optional<AtomicFile> file_;  // none: it is not to be written
  PromptCacheOrigin origin_;
  std::vector<Token> known_;  // that the file has
};

}  // namespace tyto
