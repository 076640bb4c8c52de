// UTF-8, one character at a time. Input may be any bytes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tyto {

constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// The first character of a text: how many bytes it takes and whether they are one.
struct Utf8Head {
  enum class Kind {
    valid,      // `bytes` hold one code point
    invalid,    // `bytes` can never be part of valid UTF-8, whatever follows
    truncated,  // the text ends inside a sequence that is valid so far; `bytes` reach the end
  };
  Kind kind = Kind::invalid;
  size_t bytes = 0;
  char32_t code_point = 0;  // where valid
};

// The text must not be empty. An invalid head is a maximal subpart in the sense of the Unicode
// standard (chapter 3.9), so that one U+FFFD stands for it.
Utf8Head utf8_head(std::string_view text);

// How many bytes at the beginning of the text are valid UTF-8.
size_t valid_utf8_prefix(std::string_view text);

void append_utf8(char32_t code_point, std::string& out);

}  // namespace tyto
