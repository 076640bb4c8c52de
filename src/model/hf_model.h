// Hugging Face checkpoint folders: config.json, safetensors, tokenizer.json and their companions.
#pragma once

#include <filesystem>

#include "base/progress.h"
#include "model/model.h"

namespace tyto {

void fill_model_from_folder(const std::filesystem::path& folder, Need need,
                            const Progress& progress, Model& model);

}  // namespace tyto
