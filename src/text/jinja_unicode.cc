#include "text/jinja_unicode.h"

#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"
#include "text/unicode.h"

namespace tyto::jinja {
namespace {

constexpr char32_t kInvalidByte = 0xDC00;
constexpr char32_t kSharpS = 0xDF;

CodePoint code_point_before(std::string_view text, size_t end) {
  for (size_t size = 1; size <= 4 && size <= end; ++size) {
    CodePoint found = code_point_at(text, end - size);
    if (found.size == size && (size > 1 || found.value < 0x80)) return found;
  }
  return {kInvalidByte + static_cast<unsigned char>(text[end - 1]), 1};
}

bool is_cased(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
      return true;
    default:
      return false;
  }
}

bool is_line_end(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

template <typename Drop>
std::string_view strip_if(std::string_view text, Side side, Drop drop) {
  if (side != Side::right) {
    while (!text.empty()) {
      CodePoint c = code_point_at(text, 0);
      if (!drop(c, text.substr(0, c.size))) break;
      text.remove_prefix(c.size);
    }
  }
  if (side != Side::left) {
    while (!text.empty()) {
      CodePoint c = code_point_before(text, text.size());
      if (!drop(c, text.substr(text.size() - c.size))) break;
      text.remove_suffix(c.size);
    }
  }
  return text;
}

void append_in_case(std::string& result, const CodePoint& c, std::string_view bytes, Case wanted) {
  utf8proc_int32_t value = static_cast<utf8proc_int32_t>(c.value);
  if (c.value >= kInvalidByte && c.value < kInvalidByte + 0x100) {
    result += bytes;
  } else if (wanted == Case::lower) {
    append_utf8(static_cast<char32_t>(utf8proc_tolower(value)), result);
  } else if (c.value == kSharpS) {
    result += wanted == Case::upper ? "SS" : "Ss";
  } else {
    value = wanted == Case::upper ? utf8proc_toupper(value) : utf8proc_totitle(value);
    append_utf8(static_cast<char32_t>(value), result);
  }
}

}  // namespace

CodePoint code_point_at(std::string_view text, size_t at) {
  unsigned char byte = static_cast<unsigned char>(text[at]);
  if (byte < 0x80) return {byte, 1};
  const Utf8Head head = utf8_head(text.substr(at));
  if (head.kind != Utf8Head::Kind::valid) return {kInvalidByte + byte, 1};
  return {head.code_point, head.bytes};
}

size_t count_code_points(std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); ++count) at += code_point_at(text, at).size;
  return count;
}

size_t byte_offset(std::string_view text, size_t code_points) {
  size_t at = 0;
  for (; code_points > 0 && at < text.size(); --code_points) at += code_point_at(text, at).size;
  return at;
}

std::vector<std::string_view> split_code_points(std::string_view text) {
  std::vector<std::string_view> result;
  for (size_t at = 0; at < text.size();) {
    size_t size = code_point_at(text, at).size;
    result.push_back(text.substr(at, size));
    at += size;
  }
  return result;
}

bool is_space(char32_t c) {
  return is_white_space(c) || (c >= 0x1C && c <= 0x1F);
}

bool is_printable(char32_t c) {
  if (c < 0x7F) return c >= 0x20;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool is_digit(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_ND;
}

bool is_letter(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return true;
    default:
      return false;
  }
}

std::string_view strip_space(std::string_view text, Side side) {
  return strip_if(text, side,
                  [](const CodePoint& c, std::string_view) { return is_space(c.value); });
}

std::string_view strip_any(std::string_view text, std::string_view characters, Side side) {
  return strip_if(text, side, [&](const CodePoint&, std::string_view bytes) {
    return characters.find(bytes) != std::string_view::npos;
  });
}

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    CodePoint c = code_point_at(text, at);
    size_t next = at + c.size;
    if (is_line_end(c.value)) {
      lines.push_back(text.substr(begin, at - begin));
      if (c.value == '\r' && next < text.size() && text[next] == '\n') ++next;
      begin = next;
    }
    at = next;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string change_case(std::string_view text, Case wanted) {
  std::string result;
  result.reserve(text.size());
  bool after_letter = false;
  for (size_t at = 0; at < text.size();) {
    CodePoint c = code_point_at(text, at);
    Case here = wanted;
    if (wanted == Case::title) here = after_letter ? Case::lower : Case::title;
    if (wanted == Case::capital) here = at > 0 ? Case::lower : Case::title;
    append_in_case(result, c, text.substr(at, c.size), here);
    after_letter = is_cased(c.value);
    at += c.size;
  }
  return result;
}

bool all_in_case(std::string_view text, Case wanted) {
  bool any = false;
  for (size_t at = 0; at < text.size();) {
    CodePoint c = code_point_at(text, at);
    at += c.size;
    if (!is_cased(c.value)) continue;
    bool lower = utf8proc_category(static_cast<utf8proc_int32_t>(c.value)) == UTF8PROC_CATEGORY_LL;
    if (lower != (wanted == Case::lower)) return false;
    any = true;
  }
  return any;
}

std::string without_underscores(std::string_view number) {
  std::string digits(number);
  std::erase(digits, '_');
  return digits;
}

size_t find_text(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  if (from == text.size()) return std::string_view::npos;
  const void* found = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

}  // namespace tyto::jinja
