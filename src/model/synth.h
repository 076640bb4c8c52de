// Models of public shapes with random weights, so that speed can be measured without a download.
// The text they make means nothing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/atomic_file.h"
#include "base/progress.h"
#include "model/config.h"
#include "text/tokenizer/vocabulary.h"

namespace tyto {

// Writes `out`: a GGUF when its name ends in .gguf, a Hugging Face folder otherwise (f32, f16 and
// bf16 only). `type` is one of type_mix_names(). The same config, type and seed give the same bytes
// on every machine. Memory stays at a few rows. Returns notes as quantize_model does.
std::vector<std::string> synthesize(const Config& config, const std::string& type, uint64_t seed,
                                    const std::filesystem::path& out, const Progress& progress = {},
                                    Replace replace = Replace::same_kind);

// A byte-level vocabulary of config.vocab tokens at most: 256 bytes, merges of English letters, and
// the special tokens of the model's family at their public ids.
Vocabulary synthetic_vocabulary(const Config& config);

// Shapes of public models, by name: what their config.json says.

// Throws a usage Error that lists the names when there is no such shape.
Config shape_by_name(std::string_view name);
std::vector<std::string> shape_names();

}  // namespace tyto
