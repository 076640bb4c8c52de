// What makes prompts of texts and texts of answers for one model. Workers hold it while the model
// itself may be unloaded.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "engine/sampler.h"
#include "text/chat_template.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tools.h"

namespace tyto {

class Engine;
class TokenTrie;

struct ModelText {
  std::string name;
  std::string path;
  std::string format;        // "gguf v3", "safetensors"
  std::string weight_type;   // "q4_k_m"
  std::string size;          // "1.0B"
  std::string digest;        // the model's identity, 64 hexadecimal digits
  std::string architecture;  // "llama"
  uint64_t weight_bytes = 0;
  uint64_t parameters = 0;
  int64_t modified_at = 0;  // its newest file, in seconds since 1970
  uint32_t context = 0;
  uint32_t embedding_size = 0;
  SamplerOptions sampling = {};  // what a request that says nothing gets
  bool holds_streams = false;    // until the receipt proves what --require asks for
  // Shared by the engine and all that make requests.
  std::shared_ptr<const Tokenizer> tokenizer = {};
  std::shared_ptr<const ChatTemplate> chat_template = {};  // none: the model has none
  std::string chat_template_source = {};
  std::string why_no_chat = {};  // it has none, but others to choose from
  // For conversations with tools, where the model has one of its own for them.
  std::shared_ptr<const ChatTemplate> tool_template = {};
  std::string why_no_tools = {};              // why that one cannot be used; empty: it can
  ToolFormat tool_format = ToolFormat::none;  // how the template for tools writes calls

  // For constraints; made when it is first asked for.
  std::shared_ptr<const TokenTrie> token_trie() const;

 private:
  mutable std::once_flag trie_made_ = {};
  mutable std::shared_ptr<const TokenTrie> trie_ = {};  // shared by the constraints
};

// `chat_template` as choose_chat_template has it; a model without one is served all the same.
std::shared_ptr<const ModelText> text_of(const std::string& name, Engine& engine,
                                         const std::string& chat_template,
                                         const SamplerOptions& sampling);

}  // namespace tyto
