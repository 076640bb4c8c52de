// Text that a file, a model or a device wrote, made fit for a terminal, which obeys control
// characters: they move the cursor, rename the window and overwrite what was printed before.
//
// What is not text, here: control characters (C0, DEL, C1), bytes that are not UTF-8, and the
// characters that turn the direction of writing, so that a line reads otherwise than it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tyto {

// What is not text is written out: a character as \u001b, which JSON writes so too and which leaves
// printed JSON what it was, a byte as \xff. Line breaks and tabs stay.
std::string printable(std::string_view text);

// The same on one line. Behind `most` bytes it is cut and ends with "…".
std::string printable_line(std::string_view text, size_t most = SIZE_MAX);
std::string printable_name(std::string_view name);  // of a length that fits into a message

// What is not text is left out, and U+FFFD stands for bytes that are not UTF-8. Line breaks and
// tabs stay. Pieces of a text that end between characters may be given one by one.
std::string only_text(std::string_view text);

}  // namespace tyto
