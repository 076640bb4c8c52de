// How much room text takes on a terminal, whose lines are columns wide and not bytes: wide
// characters take two, combining ones none. The text is printable (base/printable.h).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tyto {

size_t columns_of(std::string_view text);

// At most so many columns: the middle of what is longer becomes one "…", because paths and names
// differ at their ends.
std::string shortened(std::string_view text, size_t most);

// The same with the "…" at the end, as sentences are cut.
std::string shortened_at_end(std::string_view text, size_t most);

// Lines of at most so many columns, broken at spaces, and inside a word where that is longer. A
// line that begins with spaces keeps them below, too. There is at least one line.
std::vector<std::string> wrapped_lines(std::string_view text, size_t most);

}  // namespace tyto
