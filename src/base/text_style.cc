#include "base/text_style.h"

#include <fmt/format.h>

#include <array>

namespace tyto {

std::string inked(std::string_view text, Ink ink, const TextStyle& style) {
  constexpr std::array<const char*, 5> kCodes = {"", "1", "2", "31", "32"};
  if (!style.colour || ink == Ink::plain || text.empty()) return std::string(text);
  return fmt::format("\033[{}m{}\033[0m", kCodes[static_cast<size_t>(ink)], text);
}

}  // namespace tyto
