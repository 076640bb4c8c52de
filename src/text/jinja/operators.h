#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "text/jinja/value.h"

namespace tyto::jinja {

// Operators with Python's meaning, without Python's unbounded integers: overflow is an error.

enum class Operator : uint8_t {
  add,
  subtract,
  multiply,
  divide,
  floor_divide,
  modulo,
  power,
  concatenate,
  equal,
  not_equal,
  less,
  less_equal,
  greater,
  greater_equal,
  in,
  not_in,
};

Value binary(Machine& machine, Operator op, const Value& left, const Value& right);
Value negate(Machine& machine, const Value& value);
Value plus(Machine& machine, const Value& value);
bool compare(Machine& machine, Operator op, const Value& left, const Value& right);

// a.name looks for a method first and then for a member, a[key] the other way round; what is not
// there is undefined, and looking into the undefined is an error.
Value attribute(Machine& machine, const Value& object, std::string_view name);
Value subscript(Machine& machine, const Value& object, const Value& key);

struct SliceBounds {
  Value start = None{};
  Value stop = None{};
  Value step = None{};
};
Value slice(Machine& machine, const Value& object, const SliceBounds& bounds);

// Values as text: what {{ }} prints, what repr() shows, JSON, and the two ways to fill a pattern.

std::string_view to_text(Machine& machine, const Value& value);  // str(); undefined is empty
std::string_view to_repr(Machine& machine, const Value& value);  // repr()

// json.dumps as transformers calls it: non-ASCII letters stay as they are.
struct JsonStyle {
  int64_t indent = -1;  // -1: all in one line
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::string_view item_separator = ", ";
  std::string_view key_separator = ": ";
};
std::string_view to_json(Machine& machine, const Value& value, const JsonStyle& style);

// "%s and %d" % (a, b): the conversions s r d i x f, with width, zero padding and precision.
std::string_view format_percent(Machine& machine, std::string_view pattern,
                                const std::vector<Value>& values);

// "{} {0} {name}".format(...), without format specifications.
std::string_view format_braces(Machine& machine, std::string_view pattern, const Arguments& values);

}  // namespace tyto::jinja
