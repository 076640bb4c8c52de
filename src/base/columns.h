// How much room text takes on a terminal, whose lines are columns wide and not bytes: wide
// characters take two, combining ones none. The text is printable (base/utf8.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tyto {

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
