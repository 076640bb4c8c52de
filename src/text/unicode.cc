#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"

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

// Nothing below U+0300 composes with anything below U+0300, so such text is in form C already.
bool surely_nfc(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0xCC; });
}

// Fully decomposed code points, each run of combining marks still in the order of the text.
std::vector<utf8proc_int32_t> decompose(std::string_view text) {
  constexpr auto kOptions =
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPOSE);
  std::vector<utf8proc_int32_t> points;
  points.reserve(text.size());
  while (!text.empty()) {
    const Utf8Head head = utf8_head(text);
    TYTO_ASSERT(head.kind == Utf8Head::Kind::valid);
    text.remove_prefix(head.bytes);
    // No canonical decomposition is longer than four code points.
    std::array<utf8proc_int32_t, 8> parts{};
    int boundary_state = 0;
    const auto count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(head.code_point), parts.data(),
                                parts.size(), kOptions, &boundary_state);
    TYTO_ASSERT(count >= 0 && count <= static_cast<utf8proc_ssize_t>(parts.size()));
    points.insert(points.end(), parts.begin(), parts.begin() + count);
  }
  return points;
}

// utf8proc orders combining marks by insertion, which is quadratic in a run of them; text may
// consist of nothing else, so the runs are sorted here.
void order_marks(std::vector<utf8proc_int32_t>& points) {
  const auto mark_class = [](utf8proc_int32_t point) {
    return utf8proc_get_property(point)->combining_class;
  };
  for (auto begin = points.begin(); begin != points.end();) {
    if (mark_class(*begin) == 0) {
      ++begin;
      continue;
    }
    const auto end =
        std::find_if(begin, points.end(), [&](auto point) { return mark_class(point) == 0; });
    std::stable_sort(begin, end, [&](auto a, auto b) { return mark_class(a) < mark_class(b); });
    begin = end;
  }
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

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

std::string to_nfc(std::string_view text) {
  if (surely_nfc(text)) return std::string(text);
  std::vector<utf8proc_int32_t> points = decompose(text);
  order_marks(points);
  const auto count =
      utf8proc_normalize_utf32(points.data(), static_cast<utf8proc_ssize_t>(points.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  TYTO_ASSERT(count >= 0);
  points.resize(static_cast<size_t>(count));
  std::string composed;
  composed.reserve(text.size());
  for (const auto point : points) append_utf8(static_cast<char32_t>(point), composed);
  return composed;
}

}  // namespace tyto
