#include "model/non_finite.h"

#include "model/weight_table.h"
#include "tensor/finite.h"

namespace tyto {

std::optional<Error> non_finite_value(const Model& model, const TensorView& weight) {
  const auto found = find_non_finite(weight);
  if (!found) return std::nullopt;
  return Error(ErrorCode::input, model.place_of(weight),
               fmt::format("{} at row {}, column {} cannot be a weight", found->value, found->row,
                           found->column),
               "the file is damaged, or was so before it was converted");
}

std::optional<Error> non_finite_weight(const Model& model) {
  for (const WeightSpec& spec : weight_specs(model.config, NameStyle::gguf))
    if (auto error = non_finite_value(model, view_of(model.weights, spec))) return error;
  return std::nullopt;
}

}  // namespace tyto
