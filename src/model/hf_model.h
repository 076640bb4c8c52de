// Hugging Face checkpoint folders: config.json, safetensors, tokenizer.json and their companions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/progress.h"
#include "model/config.h"
#include "model/model.h"
#include "tensor/dtype.h"
#include "text/tokenizer/vocabulary.h"

namespace tyto {

void fill_model_from_folder(const std::filesystem::path& folder, Need need,
                            const Progress& progress, Model& model);

// config.json and generation_config.json of Hugging Face checkpoints.

// The shape, checked. Architectures and features Tyto would compute wrongly are refused by name.
Config config_from_hf(const Json& root);

// Token ids under "eos_token_id": one, a list, or none. One of `tokens` or above is an Error.
std::vector<Token> eos_ids_from_hf(const Json& root, uint64_t tokens);

// GPTQ's and AWQ's folders of 2023 say it by the names of their tensors alone.
bool is_quantised_tensor(std::string_view name);
// `sign` shows that the checkpoint is a quantised one.
[[noreturn]] void refuse_quantised(const std::string& path, const std::string& sign);

GenerationDefaults generation_defaults_from_hf(const Json& root);

// The JSON files of a Hugging Face checkpoint folder, as text.

std::string hf_config_json(const Config& config, DType dtype, const Vocabulary& vocabulary);
std::string hf_generation_config_json(const Vocabulary& vocabulary);
std::string hf_tokenizer_json(const Vocabulary& vocabulary);  // byte-level vocabularies only
std::string hf_tokenizer_config_json(const Vocabulary& vocabulary, const Config& config);

}  // namespace tyto
