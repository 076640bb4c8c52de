// Filters, tests, methods and functions: tables of Builtin, looked up by name.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/value.h"

namespace tyto::jinja {

// Python's view of text over UTF-8 bytes: indices count code points, white space is Unicode's.
// A byte that is not part of valid UTF-8 counts as one code point and is never changed.

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

// Null when this subset does not have it.
const Builtin* find_filter(std::string_view name);
const Builtin* find_test(std::string_view name);
const Builtin* find_function(std::string_view name);
const Builtin* find_method(const Value& self, std::string_view name);

// Matches the arguments with the builtin's parameters and runs it.
Value call_builtin(Machine& machine, const Builtin& builtin, const Value& self,
                   const Arguments& arguments);

// The tables, one per file that implements them.
std::span<const Builtin> text_filters();
std::span<const Builtin> sequence_filters();
std::span<const Builtin> tests();
std::span<const Builtin> functions();
std::span<const Builtin> text_methods();
std::span<const Builtin> container_methods(const Value& self);

// Replaces `old`, at most `limit` times when it is not negative. str.replace and its filter.
std::string_view replace_text(Machine& machine, std::string_view text, std::string_view old,
                              std::string_view fresh, int64_t limit);

std::string_view in_case(Machine& machine, std::string_view text, Case wanted);

// Arguments that must have a type.
bool given_truthy(const Value* argument);
int64_t given_integer(Machine& machine, const Value* argument, int64_t fallback);
std::string_view given_text(Machine& machine, const Value* argument);

// Follows "a.b.0" from a value, as the attribute arguments of filters do.
Value dotted_attribute(Machine& machine, const Value& value, std::string_view path);

}  // namespace tyto::jinja
