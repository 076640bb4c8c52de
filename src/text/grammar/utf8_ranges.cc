#include "text/grammar/utf8_ranges.h"

#include <algorithm>
#include <string>

#include "base/utf8.h"

namespace tyto {
namespace {

std::string spelled(char32_t character) {
  std::string bytes;
  append_utf8(character, bytes);
  return bytes;
}

// All of `range` has the same number of bytes. Where the ends differ in some byte, all the bytes
// behind it must run from the lowest to the highest; else the range is cut there.
void append(CharacterRange range, std::vector<ByteRanges>& out) {
  const std::string first = spelled(range.first), last = spelled(range.last);
  for (size_t tail = 1; tail < first.size(); ++tail) {
    const char32_t low = (char32_t{1} << (6 * tail)) - 1;
    if ((range.first & ~low) == (range.last & ~low)) continue;
    if ((range.first & low) != 0) {
      append({range.first, range.first | low}, out);
      return append({(range.first | low) + 1, range.last}, out);
    }
    if ((range.last & low) != low) {
      append({range.first, (range.last & ~low) - 1}, out);
      return append({range.last & ~low, range.last}, out);
    }
  }
  ByteRanges bytes;
  for (size_t i = 0; i < first.size(); ++i)
    bytes.push_back({static_cast<uint8_t>(first[i]), static_cast<uint8_t>(last[i])});
  out.push_back(std::move(bytes));
}

}  // namespace

std::vector<ByteRanges> utf8_sequences(CharacterRange range) {
  constexpr CharacterRange kSameLength[] = {
      {0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, kLastCharacter}};
  std::vector<ByteRanges> sequences;
  for (const CharacterRange& each : kSameLength) {
    const CharacterRange part{std::max(range.first, each.first), std::min(range.last, each.last)};
    if (part.first <= part.last) append(part, sequences);
  }
  return sequences;
}

}  // namespace tyto
