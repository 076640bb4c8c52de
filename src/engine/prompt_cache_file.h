// The keys and values of a prompt in a file, so that a later start runs only what is new.
//
//   tyto-prompt-cache-2
//   {"model": ..., "made_by": ..., "kv_type": ..., ..., "window_from": F, "tokens": N}
//   N token ids (int32), N bytes (1: a pass began there, 2: one of the prefill device), the
//   caches page by page (Pipeline::read_page), the windowed ones from the page F on, the state
//   behind all tokens where layers have one, 16 bytes: XXH3-128 of everything before them
//
// Numbers lie as this machine has them; the hash tells others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/atomic_file.h"
#include "engine/prefix_cache.h"
#include "llama/pipeline.h"

namespace tyto {

// Other users must not read the prompts.
inline constexpr FileKind kPromptCacheFile = {"a prompt cache", "tyto-prompt-cache-", true};

// What has to be the same for a file to hold the very bits that would be computed again.
struct PromptCacheOrigin {
  std::string model;    // its identity
  std::string made_by;  // build, kernels and settings that decide the numbers
  DType kv_type = DType::f16;
  uint32_t layers = 0, kv_heads = 0, head_dim = 0;
  uint32_t group = 1, page = 0;  // how a page lies (KvShape)
  // Layers that have windowed pages (KvWindow), which are none of `layers`; positions of a window.
  uint32_t windowed_layers = 0, window = 0;
  uint64_t state_bytes = 0;  // one state's; 0: no layer has one

  uint64_t position_bytes(KvKind kind) const;
};
PromptCacheOrigin prompt_cache_origin(const Pipeline& pipeline, const Config& config,
                                      const std::string& model, const std::string& made_by);

struct PromptCacheContent {
  std::string why_not;  // it cannot be used; empty: it can
  std::vector<Token> tokens = {};
  PassBegins begins = {};                  // [tokens]
  std::span<const std::byte> caches = {};  // page by page; points into the file
  uint32_t window_from = 0;                // page from which on there are windowed ones
  std::span<const std::byte> window_caches = {};
  std::span<const std::byte> state = {};  // behind the last token
};
// Takes any bytes: what is damaged, or of another origin, or has a token that is not below `vocab`,
// is a reason and no Error.
PromptCacheContent read_prompt_cache(std::span<const std::byte> file,
                                     const PromptCacheOrigin& wanted, uint32_t vocab);

// Puts the content where prompts are looked up, as much of it as a context and the free pages hold;
// nothing if the window in front of that, or the state there, is not in the file. How many tokens
// that is.
uint32_t place_prompt_cache(const PromptCacheContent& content, Pipeline& pipeline,
                            PrefixCache& prefixes);

// Writes what `table` holds, which is that of `tokens`: [table.length()], not 0. The file is not
// committed.
void write_prompt_cache(AtomicFile& file, const PromptCacheOrigin& origin,
                        std::span<const Token> tokens, const KvTable& table, Pipeline& pipeline);

}  // namespace tyto
