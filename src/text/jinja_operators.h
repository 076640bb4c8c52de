// Operators with Python's meaning, without Python's unbounded integers: overflow is an error.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "text/jinja_value.h"

namespace tyto::jinja {

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

}  // namespace tyto::jinja
