#include "base/printable.h"

#include <fmt/format.h>

#include "base/redaction.h"
#include "base/utf8.h"

namespace tyto {
namespace {

constexpr size_t kLongestName = 80;

constexpr bool is_line_break_or_tab(char32_t c) {
  return c == '\n' || c == '\t';
}

constexpr bool is_control(char32_t c) {
  return c < 0x20 || (c >= 0x7F && c <= 0x9F);
}

// Embeddings, overrides and isolates: from there on text may be shown from right to left.
constexpr bool turns_direction(char32_t c) {
  return (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

// Calls on_text(bytes), on_character(code point that is not text) and on_invalid(bytes), in order.
template <class OnText, class OnCharacter, class OnInvalid>
void for_each_part(std::string_view text, OnText on_text, OnCharacter on_character,
                   OnInvalid on_invalid) {
  while (!text.empty()) {
    const Utf8Head head = utf8_head(text);
    const std::string_view bytes = text.substr(0, head.bytes);
    if (head.kind != Utf8Head::Kind::valid)
      on_invalid(bytes);
    else if (is_control(head.code_point) || turns_direction(head.code_point))
      on_character(head.code_point);
    else
      on_text(bytes);
    text.remove_prefix(head.bytes);
  }
}

std::string written_out(std::string_view text, bool on_one_line) {
  std::string out;
  for_each_part(
      text, [&](std::string_view bytes) { out += bytes; },
      [&](char32_t c) {
        if (is_line_break_or_tab(c) && !on_one_line)
          out += static_cast<char>(c);
        else
          out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
      },
      [&](std::string_view bytes) {
        for (const char byte : bytes)
          out += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
      });
  return out;
}

// Where to cut so that no character is split.
size_t cut_before(std::string_view text, size_t most) {
  size_t end = most;
  while (end > 0 && most - end < 3 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return end;
}

}  // namespace

std::string printable(std::string_view text) {
  return written_out(text, false);
}

std::string printable_line(std::string_view text, size_t most) {
  if (text.size() <= most) return written_out(text, true);
  return written_out(text.substr(0, cut_before(text, most)), true) + "…";
}

std::string printable_name(std::string_view name) {
  return printable_line(redacted(name), kLongestName);  // a cut name may hide the form of a secret
}

std::string only_text(std::string_view text) {
  std::string out;
  for_each_part(
      text, [&](std::string_view bytes) { out += bytes; },
      [&](char32_t c) {
        if (is_line_break_or_tab(c)) out += static_cast<char>(c);
      },
      [&](std::string_view) { out += kReplacementCharacter; });
  return out;
}

}  // namespace tyto
