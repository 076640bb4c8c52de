// Which model it is that runs: everything that decides what it computes and how it is spoken to.
#pragma once

#include <filesystem>
#include <string>

#include "base/progress.h"
#include "model/model.h"

namespace tyto {

struct ModelIdentity {
  std::string hash;        // 32 hexadecimal digits
  std::string form;        // what was hashed, in words
  double seconds = 0;      // that it took
  bool is_cached = false;  // no weights were read for it: all hashes of files were kept
  std::vector<std::string> adapters = {};  // the hashes of their files
};

// Covers every byte of the mapped files, every field of the config that decides the forward pass,
// the vocabulary with all settings of the tokenizer, the chat template, and LoRA adapters with
// their scales. Hashes of files are kept in `kept` (base/hash.h). An Error when a file has changed
// since it was mapped.
ModelIdentity identity_of(const Model& model, const std::filesystem::path& kept,
                          const Progress& progress = {});

}  // namespace tyto
