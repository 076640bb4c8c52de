// A conversation as a model sees it: the text that a chat template makes of it, and its tokens.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tyto {

struct ChatText {
  std::string text;
  std::vector<size_t> plain;  // as EncodeOptions has it: where messages spell special tokens
  bool has_bos = false;       // the template wrote the BOS token itself
};

// The template's own markers are special tokens. What messages, their calls and tools spell stays
// text: "<|eot_id|>" in a content or in a tool's description ends no turn, unless
// `special_in_messages`. BOS and EOS are the vocabulary's where the options have none.
ChatText render_chat(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                     const std::vector<ChatMessage>& messages, const ChatOptions& options = {},
                     bool special_in_messages = false);

std::vector<Token> encode_chat(const Tokenizer& tokenizer, const ChatText& chat);
std::vector<Token> encode_chat(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                               const std::vector<ChatMessage>& messages,
                               const ChatOptions& options = {}, bool special_in_messages = false);

// A prompt as it is. A BOS token that the text writes itself is not added once more.
std::vector<Token> encode_prompt(const Tokenizer& tokenizer, std::string_view text,
                                 const EncodeOptions& options);

}  // namespace tyto
