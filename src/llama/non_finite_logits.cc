#include "llama/non_finite_logits.h"

#include "model/non_finite.h"

namespace tyto {

void fail_non_finite_logits(const Model& model, ErrorCode code, const std::string& who) {
  if (const auto weight = non_finite_weight(model)) throw *weight;
  throw Error(code, who, "the logits are not finite, though all weights are",
              code == ErrorCode::device ? "see --on-npu-error"
                                        : "the weights are too large: a sum has overflowed");
}

}  // namespace tyto
