#include "base/columns.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <utf8proc.h>

#include "base/utf8.h"

namespace tyto {
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
