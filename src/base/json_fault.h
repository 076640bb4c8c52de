// What is wrong with a text that should be JSON, in words for people. Inside base only.
#pragma once

#include <string>
#include <string_view>

namespace tyto {

// "line 3, column 7: expected a comma or }, found 'x'"; empty where the grammar finds no fault.
std::string json_fault(std::string_view text);

}  // namespace tyto
