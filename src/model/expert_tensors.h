// Experts of a layer as one matrix, where files have a tensor of each, or gates and ups in one.
#pragma once

#include <string>
#include <vector>

#include "model/model.h"
#include "model/weight_table.h"

namespace tyto {

// `tensors` with those of single experts, under any of the names that files give them, replaced by
// matrices of all experts, as weight_specs() calls them. They are copies, which model.copies gets,
// unless the experts lie one after the other. gpt-oss's checkpoints have them together, turned, and
// gates and ups in turn: copies as well. An expert that is missing, or differs from the others
// in shape or type, is an error naming it.
std::vector<NamedTensor> with_experts_together(const std::vector<NamedTensor>& tensors,
                                               const Config& config, NameStyle style,
                                               const std::string& where, Model& model);

// The tensors that a checkpoint folder of this config has: those of `specs`, in the style of
// hugging_face, with a tensor of each expert in the place of all of them. gpt-oss's are refused.
std::vector<WeightSpec> specs_of_each_expert(const Config& config,
                                             const std::vector<WeightSpec>& specs);

}  // namespace tyto
