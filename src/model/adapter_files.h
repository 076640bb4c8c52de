// What is in the file of a LoRA adapter, held against the model that it is for.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "model/model.h"
#include "model/weight_table.h"

namespace tyto {

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
  std::vector<std::vector<std::byte>> copies;  // of tensors at odd places in it
  std::vector<AdapterPair> pairs;
  RopeLayout layout = RopeLayout::halves;  // of the rows of b for Q and K
  double alpha = 0;
  bool by_root = false;
};

// A GGUF, or a folder with adapter_config.json. Every tensor of it is in a pair, or an Error says
// why it cannot be.
AdapterFile read_adapter(const std::filesystem::path& path, const Config& config);

}  // namespace tyto
