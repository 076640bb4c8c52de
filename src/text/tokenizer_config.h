// tokenizer_config.json: which tokens begin and end a text, and the chat template.
#pragma once

#include <string>

#include "text/vocabulary.h"

namespace tyto {

// Overrides what tokenizer.json said where the config says something. `name` is for errors.
void apply_tokenizer_config(const std::string& json, const std::string& name,
                            Vocabulary& vocabulary);

}  // namespace tyto
