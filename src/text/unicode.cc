#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"

namespace tyto {

namespace {

// Nothing below U+0300 composes with anything below U+0300, so such text is in form C already.
bool surely_nfc(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0xCC; });
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

// Fully decomposed code points, each run of combining marks still in the order of the text.
std::vector<utf8proc_int32_t> decompose(std::string_view text, bool compatibility) {
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                                      (compatibility ? UTF8PROC_COMPAT : 0));
  std::vector<utf8proc_int32_t> points;
  points.reserve(text.size());
  while (!text.empty()) {
    const Utf8Head head = utf8_head(text);
    TYTO_ASSERT(head.kind == Utf8Head::Kind::valid);
    text.remove_prefix(head.bytes);
    // No decomposition is longer than that of U+FDFA.
    std::array<utf8proc_int32_t, 18> parts{};
    int boundary_state = 0;
    const auto count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(head.code_point), parts.data(),
                                parts.size(), options, &boundary_state);
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

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

}  // namespace

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

std::string to_normal_form(std::string_view text, NormalForm form) {
  if (is_ascii(text) || (form == NormalForm::nfc && surely_nfc(text))) return std::string(text);
  const bool compatibility = form == NormalForm::nfkc || form == NormalForm::nfkd;
  std::vector<utf8proc_int32_t> points = decompose(text, compatibility);
  order_marks(points);
  if (form == NormalForm::nfc || form == NormalForm::nfkc) {
    const auto count = utf8proc_normalize_utf32(
        points.data(), static_cast<utf8proc_ssize_t>(points.size()),
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    TYTO_ASSERT(count >= 0);
    points.resize(static_cast<size_t>(count));
  }
  std::string normal;
  normal.reserve(text.size());
  for (const auto point : points) append_utf8(static_cast<char32_t>(point), normal);
  return normal;
}

bool is_control(char32_t c) {
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_CC || kind == UTF8PROC_CATEGORY_CF ||
         kind == UTF8PROC_CATEGORY_CS || kind == UTF8PROC_CATEGORY_CO;
}

bool is_nonspacing_mark(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_MN;
}

bool is_mark(char32_t c) {
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_MC ||
         kind == UTF8PROC_CATEGORY_ME;
}

char32_t lower_case(char32_t c) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

}  // namespace tyto
