// UTF-8, one character at a time. Input may be any bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

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

// Text that a file, a model or a device wrote, made fit for a terminal, which obeys control
// characters: they move the cursor, rename the window and overwrite what was printed before.
//
// What is not text, here: control characters (C0, DEL, C1), bytes that are not UTF-8, and the
// characters that turn the direction of writing, so that a line reads otherwise than it is.

// What is not text is written out: a character as \u001b, which JSON writes so too and which leaves
// printed JSON what it was, a byte as \xff. Line breaks and tabs stay.
std::string printable(std::string_view text);

// The same on one line. Behind `most` bytes it is cut and ends with "…".
std::string printable_line(std::string_view text, size_t most = SIZE_MAX);
std::string printable_name(std::string_view name);  // as long as fits into a message

// What is not text is left out, and U+FFFD stands for bytes that are not UTF-8. Line breaks and
// tabs stay. Pieces of a text that end between characters may be given one by one.
std::string only_text(std::string_view text);

// How much room text takes on a terminal, whose lines are columns wide and not bytes: wide
// characters take two, combining ones none. The text is printable.

size_t columns_of(std::string_view text);

// At most `most` columns: the middle of what is longer becomes one "…", because paths and names
// differ at their ends.
std::string shortened(std::string_view text, size_t most);

// The same with the "…" at the end, as sentences are cut.
std::string shortened_at_end(std::string_view text, size_t most);

// Lines of at most `most` columns, broken at spaces, and inside a word where that is longer. A
// line that begins with spaces keeps them below, too. There is at least one line.
std::vector<std::string> wrapped_lines(std::string_view text, size_t most);

// Colours of text on a terminal.

// What the reader looks at.
struct TextStyle {
  size_t width = 0;  // columns that a line may take; 0: any number, as in a file or a pipe
  bool colour = false;
};

enum class Ink : uint8_t { plain, bold, dim, red, green };
// The text as it is where the style has no colour.
std::string inked(std::string_view text, Ink ink, const TextStyle& style);

}  // namespace tyto
