// What to say when results are no finite numbers.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "model/model.h"

namespace tyto {

// Throws: about a weight that is not finite, which no other device and no second try makes better,
// else about `who` computed the `results`. `code` is of the latter.
[[noreturn]] void fail_non_finite(std::string_view results, const Model& model, ErrorCode code,
                                  const std::string& who);

}  // namespace tyto
