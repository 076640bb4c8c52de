// What to say when logits are no finite numbers.
#pragma once

#include <string>

#include "base/error.h"
#include "model/model.h"

namespace tyto {

// Throws: about a weight that is not finite, which no other device and no second try makes better,
// else about `who` computed them. `code` is of the latter.
[[noreturn]] void fail_non_finite_logits(const Model& model, ErrorCode code,
                                         const std::string& who);

}  // namespace tyto
