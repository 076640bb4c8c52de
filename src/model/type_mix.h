// Which type each weight gets when a model is written as one named type or mix of types: the same
// as llama-quantize gives it under that name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "model/weight_table.h"

namespace tyto {

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

// One plan per spec. Vectors are f32. A matrix whose rows are no whole number of blocks gets a type
// of smaller blocks, or f16; `notes` gains a line for each kind of matrix that did.
std::vector<TensorPlan> plan_types(const TypeMix& mix, const Config& config,
                                   const std::vector<WeightSpec>& specs,
                                   std::vector<std::string>& notes,
                                   Importance importance = Importance::unknown);

}  // namespace tyto
