// The few facts of Unicode that tokenising needs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tyto {

// The property White_Space.
bool is_white_space(char32_t code_point);

// Valid UTF-8 to a normalisation form, in time linear in the text (n log n for a pathological run
// of combining marks).
enum class NormalForm { nfc, nfd, nfkc, nfkd };
std::string to_normal_form(std::string_view text, NormalForm form);

// General category C but for unassigned code points, which a later Unicode may make letters of.
bool is_control(char32_t code_point);
bool is_nonspacing_mark(char32_t code_point);  // Mn
bool is_mark(char32_t code_point);             // M

// Simple case mapping, one code point to one.
char32_t lower_case(char32_t code_point);

}  // namespace tyto
