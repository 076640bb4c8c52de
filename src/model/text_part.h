// Tensors as files have them, made the ones that weight_specs() names: what is no part of a text
// model is left out, matrices whose rows lie in turns are put in order, and values that files keep
// under a function are brought to what the forward pass takes.
#pragma once

#include <string>

#include "model/model.h"
#include "model/weight_table.h"

namespace tyto {

// Leaves vision towers and layers for drafting out of model.tensors, and says so in model.notes.
// The text part of a checkpoint with vision loses the prefix that its names have.
// `drafting` layers stand behind the others in a GGUF.
void keep_text_part(NameStyle style, uint32_t drafting, Model& model);

// For layers with a recurrence (LayerKind::delta_rule). Rows in another order are copied.
std::vector<NamedTensor> with_recurrence_in_order(std::vector<NamedTensor> tensors,
                                                  const Config& config, NameStyle style,
                                                  const std::string& where, Model& model);

// Where rows of the value heads stand in a GGUF of tiled heads, and where in a checkpoint.
// `row` counts from the first value on; each head has `width` rows.
uint64_t untiled_row(uint64_t row, uint64_t width, const RecurrentHeads& heads);

}  // namespace tyto
