#include "text/grammar/gbnf_text.h"

#include <fmt/format.h>

namespace tyto {
namespace {

bool is_plain(char32_t character) {
  return (character >= '0' && character <= '9') || (character >= 'a' && character <= 'z') ||
         (character >= 'A' && character <= 'Z');
}

std::string in_class(char32_t character) {
  if (is_plain(character)) return std::string(1, static_cast<char>(character));
  return fmt::format("\\U{:08X}", static_cast<uint32_t>(character));
}

}  // namespace

std::string gbnf_text(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      result.append("\\").push_back(c);
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F)
      result += fmt::format("\\x{:02X}", static_cast<unsigned char>(c));
    else
      result.push_back(c);
  }
  return result + "\"";
}

std::string gbnf_class(const std::vector<CharacterRange>& ranges) {
  std::string result = "[";
  for (const CharacterRange& range : ranges) {
    result += in_class(range.first);
    if (range.last > range.first) result += "-" + in_class(range.last);
  }
  return result + "]";
}

}  // namespace tyto
