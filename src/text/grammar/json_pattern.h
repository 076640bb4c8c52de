// Regular expressions of JSON schemas ("pattern") as GBNF.
#pragma once

#include <string>

#include "base/json.h"

namespace tyto {

// What may stand between the quotes of a JSON string whose value matches. `any_character` is the
// rule for one character of a JSON string. Literals, classes, groups, alternatives, repetitions,
// and anchors at the ends; the rest is an unsupported Error at `pattern`.
std::string gbnf_from_pattern(const Json& pattern, const std::string& any_character);

}  // namespace tyto
