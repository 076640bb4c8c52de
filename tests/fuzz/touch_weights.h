// Shared by the targets that read weights.
#pragma once

#include <cstdint>
#include <vector>

#include "model/config.h"
#include "model/model.h"
#include "model/weight_table.h"
#include "tensor/quant.h"

namespace tyto {

// Reads every weight, so that a view outside its file would be seen.
inline void touch_weights(const Model& model) {
  if (!model.has_weights()) return;
  for (const WeightSpec& spec : weight_specs(model.config, NameStyle::gguf)) {
    const TensorView& view = view_of(model.weights, spec);
    std::vector<float> row(view.cols);
    for (uint64_t i = 0; i < view.rows; ++i) dequantize(view.dtype, view.row(i), row);
  }
  if (model.config.head_dim != 0) rope_frequencies(model.config);
}

}  // namespace tyto
