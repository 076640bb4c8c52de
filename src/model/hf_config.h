// config.json and generation_config.json of Hugging Face checkpoints.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "model/config.h"
#include "model/model.h"
#include "text/tokenizer/vocabulary.h"

namespace tyto {

// The shape, checked. Architectures and features Tyto would compute wrongly are refused by name.
Config config_from_hf(const Json& root);

// Token ids under "eos_token_id": one, a list, or none. One of `tokens` or above is an Error.
std::vector<Token> eos_ids_from_hf(const Json& root, uint64_t tokens);

// GPTQ's and AWQ's folders of 2023 say it by the names of their tensors alone.
bool is_quantised_tensor(std::string_view name);
// `sign` shows that the checkpoint is a quantised one.
[[noreturn]] void refuse_quantised(const std::string& path, const std::string& sign);

GenerationDefaults generation_defaults_from_hf(const Json& root);

}  // namespace tyto
