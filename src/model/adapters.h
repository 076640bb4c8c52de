// LoRA adapters: what small matrices add to the projections of a model whose own weights stay as
// they are. GGUFs as llama.cpp writes them, and folders as PEFT does.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "model/model.h"
#include "model/weight_table.h"

namespace tyto {

struct AdapterChoice {
  std::filesystem::path path;
  double scale = 1;  // its strength, times what its own file says
};

// FILE or FILE=SCALE, as --lora takes it.
AdapterChoice parse_adapter(const std::string& text);
std::string adapter_text(const AdapterChoice& choice);  // the same, as it is taken

// Adds them to what the model computes; several add up. An Error where one does not fit: a tensor
// that is not the model's, or of another shape, or what adapters may have beside LoRA's matrices.
void add_adapters(const std::vector<AdapterChoice>& choices, Model& model);

// What is in the file of a LoRA adapter, held against the model that it is for.

// Adds factor * b (a x) to a projection.
struct AdapterPair {
  WeightSpec target;
  std::string where;  // for errors
  TensorView a;       // [rank, target.cols]
  TensorView b;       // [target.rows, rank]
  double factor = 1;
};

struct AdapterFile {
  MappedFile file;
  std::vector<std::vector<std::byte>> copies;  // copies of tensors at odd places in it
  std::vector<AdapterPair> pairs;
  RopeLayout layout = RopeLayout::halves;  // for the rows of b for Q and K
  double alpha = 0;
  bool by_root = false;
};

// A GGUF, or a folder with adapter_config.json. Every tensor of it is in a pair, or an Error says
// why it cannot be.
AdapterFile read_adapter(const std::filesystem::path& path, const Config& config);

}  // namespace tyto
