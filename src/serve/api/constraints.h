// Formats of answers as what the sampler is held to.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/json.h"
#include "serve/api/generation_fields.h"
#include "serve/model_text.h"

namespace tyto {
class Constraint;
}

namespace tyto::api {

using MakeConstraint = std::function<std::shared_ptr<Constraint>()>;

// None where everything may be written. `grammar` (GBNF) comes before the format.
MakeConstraint constraint_for(const std::shared_ptr<const ModelText>& model,
                              const OutputFormat& format, const std::string& grammar);

}  // namespace tyto::api
