// tokenizer_config.json: which tokens begin and end a text, and the chat template.
#pragma once

#include <string>

#include "text/vocabulary.h"

namespace tyto {

// Whether the config itself says if a token is added in front of a text and behind it.
struct SaysTokens {
  bool bos = false;
  bool eos = false;
};

// Overrides what tokenizer.json said where the config says something. `name` is for errors.
SaysTokens apply_tokenizer_config(const std::string& json, const std::string& name,
                                  Vocabulary& vocabulary);

}  // namespace tyto
