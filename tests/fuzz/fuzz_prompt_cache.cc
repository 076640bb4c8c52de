// Reads arbitrary bytes as a prompt cache. Anything but a reason or content that fits is a finding.
#include <cstdint>
#include <span>

#include "base/error.h"
#include "engine/prompt_cache_file.h"

namespace tyto {
namespace {

const PromptCacheOrigin kOrigin = {.model = "m",
                                   .made_by = "b",
                                   .kv_type = DType::f16,
                                   .layers = 1,
                                   .kv_heads = 1,
                                   .head_dim = 2,
                                   .group = 1,
                                   .page = 2,
                                   .windowed_layers = 1,
                                   .window = 2};
constexpr uint32_t kVocab = 61;

void run(std::span<const std::byte> bytes) {
  const PromptCacheContent content = read_prompt_cache(bytes, kOrigin, kVocab);
  if (!content.why_not.empty()) return;
  TYTO_ASSERT(content.begins.size() == content.tokens.size());
  const uint64_t tokens = content.tokens.size();
  TYTO_ASSERT(content.caches.size() == tokens * kOrigin.position_bytes(KvKind::full));
  TYTO_ASSERT(content.window_caches.size() ==
              (tokens - content.window_from * uint64_t{kOrigin.page}) *
                  kOrigin.position_bytes(KvKind::windowed));
  for (const Token token : content.tokens) TYTO_ASSERT(token >= 0 && token < 61);
}

}  // namespace
}  // namespace tyto

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tyto::run(std::as_bytes(std::span(data, size)));
  return 0;
}
