// Python's view of text over UTF-8 bytes: indices count code points, white space is Unicode's.
// A byte that is not part of valid UTF-8 counts as one code point and is never changed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tyto::jinja {

struct CodePoint {
  char32_t value = 0;  // 0xDC00 + byte when invalid, as Python's surrogateescape has it
  size_t size = 0;     // bytes
};

CodePoint code_point_at(std::string_view text, size_t at);  // at < text.size()
size_t count_code_points(std::string_view text);
size_t byte_offset(std::string_view text, size_t code_points);  // text.size() when past the end
std::vector<std::string_view> split_code_points(std::string_view text);

bool is_space(char32_t c);      // str.isspace
bool is_printable(char32_t c);  // what repr() shows as it is
bool is_digit(char32_t c);
bool is_letter(char32_t c);

enum class Side { left, right, both };
std::string_view strip_space(std::string_view text, Side side);
std::string_view strip_any(std::string_view text, std::string_view characters, Side side);

std::string without_underscores(std::string_view number);  // 1_000

std::vector<std::string_view> split_lines(std::string_view text);  // str.splitlines

// Unicode's simple mappings, and the sharp s, which every other full mapping is rarer than.
enum class Case { upper, lower, title, capital };
std::string change_case(std::string_view text, Case wanted);

// str.isupper and str.islower: at least one cased letter, and none of the other case.
bool all_in_case(std::string_view text, Case wanted);

// Position of needle at or after `from`, or npos. Linear in the worst case.
size_t find_text(std::string_view text, std::string_view needle, size_t from = 0);

}  // namespace tyto::jinja
