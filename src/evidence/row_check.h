// Whether a result's row says what its receipt counted.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace tyto {

// What contradicts the record; empty: nothing. `line` is the text that `record` was read from.
std::string row_contradiction(const Json& record, std::string_view line);

}  // namespace tyto
