// Formats of answers as what the sampler is held to.
#pragma once

#include <memory>
#include <string>

#include "base/json.h"
#include "serve/api/generation_fields.h"

namespace tyto {
class Grammar;
}

namespace tyto::api {

// None where everything may be written; shared by the choices. `grammar` (GBNF) comes before the
// format.
std::shared_ptr<const Grammar> grammar_for(const OutputFormat& format, const std::string& grammar);

}  // namespace tyto::api
