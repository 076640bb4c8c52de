// Weights that are no finite numbers.
#pragma once

#include <optional>

#include "base/error.h"
#include "model/model.h"

namespace tyto {

// What to throw about the first value of a weight that is infinite or not a number, by file, tensor
// and place; none: all are finite.
std::optional<Error> non_finite_value(const Model& model, const TensorView& weight);

// The same of all weights. It reads them all, so this is for when something has gone wrong.
std::optional<Error> non_finite_weight(const Model& model);

}  // namespace tyto
