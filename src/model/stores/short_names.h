// Short names of models: what people type who know a model from Ollama or by word of mouth.
#pragma once

#include <string_view>

namespace tyto {

// "llama3.2", "llama3.2:1b" and "llama-3.2-1b" are short for
// "bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M", and "llama3.2" is short for "ollama:llama3.2:1b":
// the short name is the beginning of the model's own name, without its publisher. Case, hyphens,
// underscores and colons do not matter. Behind it the name has nothing but a size, a date, the kind
// of training, the format and a tag, so "phi4" is not short for "Phi-4-mini".
bool is_short_for(std::string_view short_name, std::string_view name);

}  // namespace tyto
