// The JSON files of a Hugging Face checkpoint folder, as text.
#pragma once

#include <string>

#include "model/config.h"
#include "tensor/dtype.h"
#include "text/tokenizer/vocabulary.h"

namespace tyto {

std::string hf_config_json(const Config& config, DType dtype, const Vocabulary& vocabulary);
std::string hf_generation_config_json(const Vocabulary& vocabulary);
std::string hf_tokenizer_json(const Vocabulary& vocabulary);  // byte-level vocabularies only
std::string hf_tokenizer_config_json(const Vocabulary& vocabulary, const Config& config);

}  // namespace tyto
