// What a list of models says of one, read from headers alone: no weight is looked at.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "model/config.h"

namespace tyto {

struct ModelDescription {
  Config config;
  std::string type;           // of most of the weights: "q4_k", "bf16", "q4nx"
  uint64_t weight_bytes = 0;  // in memory
  bool has_tokenizer = false;
};

// Refuses what open_model refuses, with its words. Of a q4nx bundle the blocks are not looked at,
// whose laying out as rows is most of the work of opening one.
ModelDescription describe_model(const std::filesystem::path& path);

}  // namespace tyto
