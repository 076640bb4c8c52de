#include "cli/prompt_cache.h"

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "base/error.h"
#include "base/hash.h"
#include "base/spelling.h"
#include "check/combination.h"
#include "cli/provenance.h"
#include "engine/engine.h"
#include "shell/command_line.h"
#include "shell/terminal.h"

namespace tyto {
namespace {

// Empty files are as good as none, here as for other outputs.
bool has_content(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error) &&
         std::filesystem::file_size(path, error) > 0 && !error;
}

bool is_prompt_cache(const MappedFile& file) {
  const auto& beginning = kPromptCacheFile.beginning;
  const std::span<const std::byte> bytes = file.bytes();
  return std::ranges::equal(bytes.first(std::min(bytes.size(), beginning.size())),
                            std::as_bytes(std::span(beginning)));
}

// Everything besides the model and the type of the caches that their bits depend on. On the cpu
// that is its instruction set: neither threads nor --fusion nor -c change a result.
std::string made_by(Engine& engine, const EngineOptions& options) {
  const Combination what = combination_of(engine, options, progress_bar());
  std::string text =
      fmt::format("tyto {} {}, {}, {}", what.tyto, build_facts().commit, what.driver, what.device);
  const std::vector<DeviceInfo> devices = engine.devices();
  if (std::ranges::all_of(devices, &DeviceInfo::shares_host_memory)) return text;
  Hasher images;  // what a device interprets is in the program itself
  for (const LoadedCode& code : engine.loaded_code())
    if (code.form != "program") images.add(std::as_bytes(std::span(code.hash)));
  return text + fmt::format(" {}, weights {}, {}, images {}, on {}", what.fusion, what.weight_form,
                            what.numerics, to_hex(images.hash()), what.hardware);
}

}  // namespace

void add_prompt_cache_flags(CommandLine& command, PromptCacheFlags& flags) {
  command.add(
      {{"--prompt-cache", &flags.file, "FILE",
        "save the prompt's KV cache to FILE and reuse it for prompts with the same "
        "beginning"},
       {"--prompt-cache-read-only", &flags.read_only, "read the prompt cache but do not write it",
        Rules{.needs_one_of = {"--prompt-cache"}}}});
}

PromptCache::PromptCache(const PromptCacheFlags& flags) : path_(flags.file) {
  if (path_.empty()) return;
  const bool is_there = has_content(path_);
  if (is_there || flags.read_only) mapped_ = MappedFile(path_);
  if (is_there && !is_prompt_cache(mapped_))
    throw Error(ErrorCode::usage, path_, "is not a prompt cache", "name another file");
  if (!flags.read_only) file_.emplace(path_, Replace::same_kind_read, kPromptCacheFile);
}

void PromptCache::load(Engine& engine, const EngineOptions& options) {
  if (path_.empty()) return;
  origin_ = prompt_cache_origin(engine.pipeline(), engine.model().config,
                                engine.identity(progress_bar()).hash, made_by(engine, options));
  if (mapped_.bytes().empty()) return;
  const auto start = std::chrono::steady_clock::now();
  PromptCacheContent content =
      read_prompt_cache(mapped_.bytes(), origin_, engine.model().config.vocab);
  if (!content.why_not.empty())
    return note(fmt::format("prompt cache {}: not used, it {}", path_, content.why_not));
  const uint32_t tokens = place_prompt_cache(content, engine.pipeline(), engine.prefixes());
  known_ = std::move(content.tokens);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  note(fmt::format("prompt cache {}: {} tokens, read in {:.0f} ms", path_, tokens, took.count()));
}

void PromptCache::save(Engine& engine, std::span<const Token> tokens) {
  if (!file_) return;
  PrefixCache& prefixes = engine.prefixes();
  KvTable table = prefixes.find(tokens, static_cast<uint32_t>(tokens.size()));
  if (table.length() == 0)
    return note(
        fmt::format("prompt cache {}: not written, the prompt's end is behind the window "
                    "of the model's layers",
                    path_));
  tokens = tokens.first(table.length());
  const bool has_all = tokens.size() <= known_.size() &&
                       std::ranges::equal(tokens, std::span(known_).first(tokens.size()));
  if (!has_all) {
    write_prompt_cache(*file_, origin_, tokens, table, engine.pipeline());
    const uint64_t bytes = file_->position();
    file_->commit();
    note(fmt::format("prompt cache {}: {} tokens written ({})", path_, tokens.size(),
                     human_bytes(bytes)));
  }
  prefixes.keep(tokens, std::move(table));
}

}  // namespace tyto
