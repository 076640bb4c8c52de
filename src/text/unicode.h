// The few facts of Unicode that tokenising needs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tyto {

// The property White_Space.
bool is_white_space(char32_t code_point);

// Valid UTF-8 to normalisation form C, in time linear in the text (n log n for a pathological run
// of combining marks).
std::string to_nfc(std::string_view text);

}  // namespace tyto
