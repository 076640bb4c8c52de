// LoRA adapters: what small matrices add to the projections of a model whose own weights stay as
// they are. GGUFs as llama.cpp writes them, and folders as PEFT does.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "model/model.h"

namespace tyto {

struct AdapterChoice {
  std::filesystem::path path;
  double scale = 1;  // its strength, times what its own file says
};

// FILE or FILE=SCALE, as --lora takes it.
AdapterChoice parse_adapter(const std::string& text);

// Adds them to what the model computes; several add up. An Error where one does not fit: a tensor
// that is not the model's, or of another shape, or what adapters may have beside LoRA's matrices.
void add_adapters(const std::vector<AdapterChoice>& choices, Model& model);

}  // namespace tyto
