// Any opened model to a GGUF of a wanted type, in the layout llama.cpp expects.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/progress.h"
#include "base/thread_pool.h"
#include "model/config.h"
#include "model/gguf.h"
#include "model/model.h"
#include "model/weight_table.h"

namespace tyto {

// Importance matrices: how much each input column of a matrix matters, as llama-imatrix measures it
// on a text. An encoder that knows lets the others take the error.

struct ImportanceMatrix {
  std::string file;     // for errors and for what is written of it
  std::string dataset;  // the text it was measured on; empty: the file does not say
  uint64_t chunks = 0;  // chunks of that text; 0: the file does not say
  // By GGUF name, one number for each column: the mean square of what is multiplied by it, of the
  // largest. 0 to 1.
  std::map<std::string, std::vector<float>, std::less<>> columns;
};

// Both forms: a GGUF of general.type "imatrix", and the binary one that came before it. Every count
// is checked; a number that is negative or not finite is an Error naming the entry.
ImportanceMatrix parse_importance(std::span<const std::byte> bytes, const std::string& name);
ImportanceMatrix read_importance(const std::filesystem::path& path);

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

// Which type each weight gets when a model is written as one named type or mix of types: the same
// as llama-quantize gives it under that name.

struct TypeMix {
  std::string_view name;
  DType base;
  uint32_t file_type;  // general.file_type of GGUF
};

// Whether the encoders will be told how much each column matters (model/convert.h); two mixes
// then choose other types.
enum class Importance : uint8_t { unknown, known };
bool takes_importance(const TypeMix& mix);  // false: its matrices are the same without

// Throws a usage Error that lists the names when there is no such type.
const TypeMix& find_type_mix(std::string_view name);
std::vector<std::string> type_mix_names();
// What to say of a name that is a type of files Tyto reads, and of none that it writes; else
// nothing.
std::string why_not_written(std::string_view name);

// One plan per spec. Vectors are f32. A matrix whose rows are not a whole number of blocks gets a
// type with smaller blocks, or f16; `notes` gains a line for each kind of matrix for which this is
// so.
std::vector<TensorPlan> plan_types(const TypeMix& mix, const Config& config,
                                   const std::vector<WeightSpec>& specs,
                                   std::vector<std::string>& notes,
                                   Importance importance = Importance::unknown);

}  // namespace tyto
