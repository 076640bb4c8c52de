#include "base/utf8.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <utf8proc.h>

#include "base/redaction.h"

namespace tyto {

namespace {

// What a lead byte announces. The second byte of some sequences is restricted (Unicode, table 3-7):
// overlong forms, surrogates and everything past U+10FFFF are excluded there.
struct Lead {
  size_t bytes;
  unsigned char second_low;
  unsigned char second_high;
};

Lead lead_of(unsigned char byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Head utf8_head(std::string_view text) {
  using Kind = Utf8Head::Kind;
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const Lead lead = lead_of(byte(0));
  if (lead.bytes == 0) return {Kind::invalid, 1, 0};
  if (lead.bytes == 1) return {Kind::valid, 1, byte(0)};
  char32_t point = byte(0) & (0xFFu >> (lead.bytes + 1));
  for (size_t i = 1; i < lead.bytes; ++i) {
    if (i == text.size()) return {Kind::truncated, i, 0};
    const unsigned char low = i == 1 ? lead.second_low : 0x80;
    const unsigned char high = i == 1 ? lead.second_high : 0xBF;
    if (byte(i) < low || byte(i) > high) return {Kind::invalid, i, 0};
    point = point << 6 | (byte(i) & 0x3Fu);
  }
  return {Kind::valid, lead.bytes, point};
}

size_t valid_utf8_prefix(std::string_view text) {
  size_t valid = 0;
  while (valid < text.size()) {
    const Utf8Head head = utf8_head(text.substr(valid));
    if (head.kind != Utf8Head::Kind::valid) break;
    valid += head.bytes;
  }
  return valid;
}

void append_utf8(char32_t code_point, std::string& out) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  const auto tail = [&](int shift) { put(0x80 | (code_point >> shift & 0x3F)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    tail(0);
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    tail(6);
    tail(0);
  } else {
    put(0xF0 | code_point >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

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

namespace {

constexpr std::string_view kDots = "…";

size_t character_columns(const Utf8Head& head) {
  if (head.kind != Utf8Head::Kind::valid) return 1;
  return static_cast<size_t>(
      std::max(0, utf8proc_charwidth(static_cast<utf8proc_int32_t>(head.code_point))));
}

// The longest beginning of at most `most` columns, with the marks that belong to its last
// character.
std::string_view beginning(std::string_view text, size_t most) {
  size_t bytes = 0, columns = 0;
  while (bytes < text.size()) {
    const Utf8Head head = utf8_head(text.substr(bytes));
    columns += character_columns(head);
    if (columns > most) break;
    bytes += head.bytes;
  }
  return text.substr(0, bytes);
}

std::string_view ending(std::string_view text, size_t most) {
  size_t columns = columns_of(text);
  while (columns > most) {
    const Utf8Head head = utf8_head(text);
    columns -= character_columns(head);
    text.remove_prefix(head.bytes);
  }
  return text;
}

void wrap_line(std::string_view line, size_t most, std::vector<std::string>& lines) {
  if (columns_of(line) <= most) {
    lines.emplace_back(line);
    return;
  }
  const size_t spaces = std::min(line.find_first_not_of(' '), line.size());
  const std::string indent(most > 2 * spaces ? spaces : 0, ' ');
  std::string current = indent;
  size_t columns = indent.size();
  const auto end_line = [&] {
    lines.push_back(std::exchange(current, indent));
    columns = indent.size();
  };
  line.remove_prefix(spaces);
  while (!line.empty()) {
    const size_t end = std::min(line.find(' '), line.size());
    std::string_view word = line.substr(0, end);
    line.remove_prefix(std::min(line.find_first_not_of(' ', end), line.size()));
    if (columns > indent.size() && columns + 1 + columns_of(word) > most) end_line();
    if (columns > indent.size()) {
      current += ' ';
      ++columns;
    }
    while (columns + columns_of(word) > most) {
      // One character goes on a line in any case, however narrow that is.
      const size_t bytes =
          std::max(beginning(word, most - std::min(columns, most)).size(), utf8_head(word).bytes);
      if (bytes == word.size()) break;
      current += word.substr(0, bytes);
      word.remove_prefix(bytes);
      end_line();
    }
    current += word;
    columns += columns_of(word);
  }
  lines.push_back(std::move(current));
}

}  // namespace

size_t columns_of(std::string_view text) {
  size_t columns = 0;
  while (!text.empty()) {
    const Utf8Head head = utf8_head(text);
    columns += character_columns(head);
    text.remove_prefix(head.bytes);
  }
  return columns;
}

std::string shortened(std::string_view text, size_t most) {
  if (columns_of(text) <= most) return std::string(text);
  if (most == 0) return "";
  const size_t last = (most - 1) / 2;
  return std::string(beginning(text, most - 1 - last)) + std::string(kDots) +
         std::string(ending(text, last));
}

std::string shortened_at_end(std::string_view text, size_t most) {
  if (columns_of(text) <= most) return std::string(text);
  if (most == 0) return "";
  std::string_view kept = beginning(text, most - 1);
  while (kept.ends_with(' ') || kept.ends_with(kDots))
    kept.remove_suffix(kept.ends_with(' ') ? 1 : kDots.size());
  return std::string(kept) + std::string(kDots);
}

std::vector<std::string> wrapped_lines(std::string_view text, size_t most) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    wrap_line(text.substr(begin, end - begin), most, lines);
    begin = end + 1;
  }
  return lines;
}

std::string inked(std::string_view text, Ink ink, const TextStyle& style) {
  constexpr std::array<const char*, 5> kCodes = {"", "1", "2", "31", "32"};
  if (!style.colour || ink == Ink::plain || text.empty()) return std::string(text);
  return fmt::format("\033[{}m{}\033[0m", kCodes[static_cast<size_t>(ink)], text);
}

}  // namespace tyto
