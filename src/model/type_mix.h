// Which type each weight gets when a model is written as one named type or mix of types.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "model/tensor_plan.h"
#include "model/weight_table.h"

namespace tyto {

struct TypeMix {
  std::string_view name;
  DType base;
  uint32_t file_type;  // general.file_type of GGUF
  bool mixed;          // some weights get q6_k, as in the files people call Q4_K_M
};

// Throws a usage Error that lists the names when there is no such type.
const TypeMix& find_type_mix(std::string_view name);
std::vector<std::string> type_mix_names();

// One plan per spec. Vectors are f32. A matrix whose rows are no whole number of blocks gets q8_0,
// or f16 where that does not divide either; `notes` gains a line for each kind of matrix that did.
std::vector<TensorPlan> plan_types(const TypeMix& mix, const Config& config,
                                   const std::vector<WeightSpec>& specs,
                                   std::vector<std::string>& notes);

}  // namespace tyto
