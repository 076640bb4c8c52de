// Colours of text on a terminal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tyto {

// What the reader looks at.
struct TextStyle {
  size_t width = 0;  // columns that a line may take; 0: any number, as in a file or a pipe
  bool colour = false;
};

enum class Ink : uint8_t { plain, bold, dim, red, green };
// The text as it is where the style has no colour.
std::string inked(std::string_view text, Ink ink, const TextStyle& style);

}  // namespace tyto
