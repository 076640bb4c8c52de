// Any opened model to a GGUF of a wanted type, in the layout llama.cpp expects.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/thread_pool.h"
#include "model/gguf.h"
#include "model/importance.h"
#include "model/model.h"

namespace tyto {

// Writes `out` row by row; memory stays at a few rows whatever the model's size. `type` is one of
// type_mix_names(). Weights already of their wanted type are copied bit for bit. One that is not
// finite, or that its type cannot hold, is an Error naming it, and nothing is written. With an
// importance matrix the encoders spend their error where it matters least; one that is of another
// model, or of no use for `type`, is an Error. Returns what the user should know: weights that got
// another type, that were rounded before, or that the importance matrix does not have; and what
// GGUF could not express.
std::vector<std::string> quantize_model(const Model& in, const std::string& type,
                                        const std::filesystem::path& out, ThreadPool& pool,
                                        const Progress& progress = {},
                                        Replace replace = Replace::same_kind,
                                        const ImportanceMatrix* importance = nullptr);

// What a GGUF says by tensors of its own about the rope: by what each frequency is divided.
struct RopeTensor {
  std::string name;
  std::vector<float> divisors;  // [rotated pairs]
};
std::vector<RopeTensor> rope_tensors(const Config& config);

}  // namespace tyto
