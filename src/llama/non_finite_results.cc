#include "llama/non_finite_results.h"

#include "model/damaged_files.h"

namespace tyto {

void fail_non_finite(std::string_view results, const Model& model, ErrorCode code,
                     const std::string& who) {
  if (const auto weight = non_finite_weight(model)) throw *weight;
  throw Error(code, who, fmt::format("the {} are not finite, though all weights are", results),
              code == ErrorCode::device ? "see --on-device-error"
                                        : "the weights are too large: a sum has overflowed");
}

}  // namespace tyto
