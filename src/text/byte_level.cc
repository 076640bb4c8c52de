#include "text/byte_level.h"

#include <array>
#include "base/utf8.h"

namespace tyto {

namespace {

constexpr char32_t kFirstStandIn = 0x100;
constexpr size_t kAlphabetEnd = 0x144;  // one past the last stand-in

constexpr bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr auto kCodePoints = [] {
  std::array<char32_t, 256> points{};
  char32_t next = kFirstStandIn;
  for (int byte = 0; byte < 256; ++byte)
    points[byte] = stands_for_itself(byte) ? static_cast<char32_t>(byte) : next++;
  return points;
}();

// [code point] to byte, -1 where the code point is not in the alphabet.
constexpr auto kBytes = [] {
  std::array<int, kAlphabetEnd> bytes{};
  for (int& byte : bytes) byte = -1;
  for (int byte = 0; byte < 256; ++byte) bytes[kCodePoints[byte]] = byte;
  return bytes;
}();

}  // namespace

char32_t byte_level_code_point(unsigned char byte) {
  return kCodePoints[byte];
}

std::string to_byte_level(std::string_view bytes) {
  std::string piece;
  piece.reserve(bytes.size() * 2);
  for (const char byte : bytes) append_utf8(kCodePoints[static_cast<unsigned char>(byte)], piece);
  return piece;
}

std::string from_byte_level(std::string_view piece) {
  std::string bytes;
  bytes.reserve(piece.size());
  while (!piece.empty()) {
    const Utf8Head head = utf8_head(piece);
    const bool known = head.kind == Utf8Head::Kind::valid && head.code_point < kAlphabetEnd &&
                       kBytes[head.code_point] >= 0;
    if (known)
      bytes.push_back(static_cast<char>(kBytes[head.code_point]));
    else
      bytes.append(piece.substr(0, head.bytes));
    piece.remove_prefix(head.bytes);
  }
  return bytes;
}

}  // namespace tyto
