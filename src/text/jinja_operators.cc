#include "text/jinja_operators.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/printable.h"
#include "text/jinja_builtins.h"
#include "text/jinja_format.h"
#include "text/jinja_machine.h"
#include "text/jinja_unicode.h"

namespace tyto::jinja {
namespace {

constexpr std::string_view kSymbols[] = {"+",  "-",  "*", "/",  "//", "%",  "**", "~",
                                         "==", "!=", "<", "<=", ">",  ">=", "in", "not in"};

std::string_view symbol(Operator op) {
  return kSymbols[static_cast<size_t>(op)];
}

int64_t floor_quotient(int64_t a, int64_t b) {
  int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

int64_t power_of(Machine& machine, int64_t base, int64_t exponent) {
  int64_t result = 1;
  bool overflow = false;
  while (exponent > 0 && !overflow) {
    if (exponent % 2 == 1) overflow = __builtin_mul_overflow(result, base, &result);
    exponent /= 2;
    if (exponent > 0) overflow = overflow || __builtin_mul_overflow(base, base, &base);
  }
  if (overflow) fail(machine, "integer overflow in '**'");
  return result;
}

Value whole_arithmetic(Machine& machine, Operator op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case Operator::add:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case Operator::subtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case Operator::multiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case Operator::power:
      return power_of(machine, a, b);
    default:  // floor_divide and modulo
      if (b == 0) fail(machine, "division by zero");
      if (b == -1) {
        // The one quotient that does not fit is that of the smallest integer.
        overflow = op == Operator::floor_divide && __builtin_sub_overflow(int64_t{0}, a, &result);
      } else {
        int64_t remainder = a % b;
        if (remainder != 0 && (remainder < 0) != (b < 0)) remainder += b;
        result = op == Operator::modulo ? remainder : floor_quotient(a, b);
      }
  }
  if (overflow) fail(machine, "integer overflow in '{}'", symbol(op));
  return result;
}

Value real_arithmetic(Machine& machine, Operator op, double a, double b) {
  switch (op) {
    case Operator::add:
      return a + b;
    case Operator::subtract:
      return a - b;
    case Operator::multiply:
      return a * b;
    case Operator::power: {
      if (a == 0 && b < 0) fail(machine, "zero to a negative power");
      double result = std::pow(a, b);
      if (!std::isfinite(result) && std::isfinite(a) && std::isfinite(b)) {
        fail(machine, "'**' has no finite result");
      }
      return result;
    }
    default:
      break;
  }
  if (b == 0) fail(machine, "division by zero");
  if (op == Operator::divide) return a / b;
  double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0 && (remainder < 0) != (b < 0)) {
    remainder += b;
    quotient -= 1;
  }
  if (op == Operator::modulo) return remainder;
  double whole = std::floor(quotient);
  return quotient - whole > 0.5 ? whole + 1 : whole;
}

Value repeat(Machine& machine, const Value& value, int64_t count) {
  size_t times = static_cast<size_t>(std::max<int64_t>(count, 0));
  if (const auto* text = std::get_if<std::string_view>(&value)) {
    Builder out(machine);
    out.add(times, *text);
    return out.finish();
  }
  const List& list = *std::get<List*>(value);
  List* result = make_list(machine, list.tuple);
  if (list.items.empty()) return result;
  charge_heap(machine, std::min(times, kMaxHeap) * list.items.size() * sizeof(Value));
  for (size_t i = 0; i < times; ++i) {
    result->items.insert(result->items.end(), list.items.begin(), list.items.end());
  }
  return result;
}

bool is_sequence(const Value& value) {
  return is<std::string_view>(value) || is<List*>(value);
}

std::optional<Value> sequence_operation(Machine& machine, Operator op, const Value& left,
                                        const Value& right) {
  if (op == Operator::multiply) {
    std::optional<Number> a = as_number(left), b = as_number(right);
    if (is_sequence(left) && b && b->whole) return repeat(machine, left, b->integer);
    if (is_sequence(right) && a && a->whole) return repeat(machine, right, a->integer);
    return std::nullopt;
  }
  if (const auto* text = std::get_if<std::string_view>(&left)) {
    const auto* other = std::get_if<std::string_view>(&right);
    if (op == Operator::add && other != nullptr) {
      Builder out(machine);
      out.add(*text);
      out.add(*other);
      return out.finish();
    }
    if (op == Operator::modulo) {
      const List* const* list = std::get_if<List*>(&right);
      bool many = list != nullptr && (*list)->tuple;
      return format_percent(machine, *text, many ? (*list)->items : std::vector<Value>{right});
    }
    return std::nullopt;
  }
  const List* const* a = std::get_if<List*>(&left);
  const List* const* b = std::get_if<List*>(&right);
  if (op != Operator::add || a == nullptr || b == nullptr || (*a)->tuple != (*b)->tuple) {
    return std::nullopt;
  }
  charge_heap(machine, ((*a)->items.size() + (*b)->items.size()) * sizeof(Value));
  List* result = make_list(machine, (*a)->tuple);
  result->items = (*a)->items;
  result->items.insert(result->items.end(), (*b)->items.begin(), (*b)->items.end());
  return result;
}

Value loop_attribute(const Loop& loop, std::string_view name) {
  int64_t index = static_cast<int64_t>(loop.index);
  int64_t size = static_cast<int64_t>(loop.items.size());
  if (name == "index") return index + 1;
  if (name == "index0") return index;
  if (name == "first") return index == 0;
  if (name == "last") return index + 1 == size;
  if (name == "length") return size;
  if (name == "revindex") return size - index;
  if (name == "revindex0") return size - index - 1;
  if (name == "depth") return int64_t{1};  // more only in recursive loops, which are not here
  if (name == "depth0") return int64_t{0};
  if (name == "previtem" && loop.index > 0) return loop.items[loop.index - 1];
  if (name == "nextitem" && loop.index + 1 < loop.items.size()) return loop.items[loop.index + 1];
  return Undefined{name};
}

std::optional<Value> bind_method(Machine& machine, const Value& object, std::string_view name) {
  const Builtin* method = find_method(object, name);
  if (method == nullptr) return std::nullopt;
  charge_heap(machine, sizeof(BoundMethod));
  return &machine.methods.emplace_back(BoundMethod{method, object});
}

// Where Python's index points in a sequence of `size`, or nothing.
std::optional<size_t> position(int64_t index, int64_t size) {
  if (index < 0) index += size;
  if (index < 0 || index >= size) return std::nullopt;
  return static_cast<size_t>(index);
}

std::optional<Value> element(Machine& machine, const Value& object, const Value& key) {
  if (const Dict* const* dict = std::get_if<Dict*>(&object)) {
    const Value* found = find(machine, **dict, key);
    if (found != nullptr) return *found;
    return std::nullopt;
  }
  std::optional<Number> index = as_number(key);
  if (!index || !index->whole) return std::nullopt;
  if (const List* const* list = std::get_if<List*>(&object)) {
    auto at = position(index->integer, static_cast<int64_t>((*list)->items.size()));
    if (at) return (*list)->items[*at];
  } else if (const auto* text = std::get_if<std::string_view>(&object)) {
    auto at = position(index->integer, length(machine, object));
    if (at) {
      size_t begin = byte_offset(*text, *at);
      return text->substr(begin, code_point_at(*text, begin).size);
    }
  }
  return std::nullopt;
}

// A slice made concrete: `count` elements from `start`, `step` apart.
struct Stride {
  int64_t start = 0;
  int64_t step = 1;
  int64_t count = 0;
};

std::optional<Stride> resolve(Machine& machine, const SliceBounds& bounds, int64_t size) {
  for (const Value* bound : {&bounds.start, &bounds.stop, &bounds.step}) {
    std::optional<Number> number = as_number(*bound);
    if (!is<None>(*bound) && !(number && number->whole)) return std::nullopt;
  }
  auto given = [](const Value& bound) { return as_number(bound)->integer; };
  Stride stride;
  stride.step = is<None>(bounds.step) ? 1 : given(bounds.step);
  if (stride.step == 0) fail(machine, "slice step cannot be zero");
  stride.step = std::clamp(stride.step, -size - 1, size + 1);  // longer steps reach no further
  bool forward = stride.step > 0;
  int64_t low = forward ? 0 : -1, high = forward ? size : size - 1;
  auto clamped = [&](int64_t index) {
    if (index < 0) index = index < -size ? -1 : index + size;
    return std::clamp(index, low, high);
  };
  stride.start = is<None>(bounds.start) ? (forward ? low : high) : clamped(given(bounds.start));
  int64_t stop = is<None>(bounds.stop) ? (forward ? high : low) : clamped(given(bounds.stop));
  int64_t distance = forward ? stop - stride.start : stride.start - stop;
  int64_t pace = std::abs(stride.step);
  stride.count = distance > 0 ? (distance + pace - 1) / pace : 0;
  return stride;
}

Value slice_text(Machine& machine, std::string_view text, const Stride& stride) {
  charge_work(machine, text.size());
  if (stride.step == 1) {
    size_t begin = byte_offset(text, static_cast<size_t>(stride.start));
    std::string_view rest = text.substr(begin);
    return rest.substr(0, byte_offset(rest, static_cast<size_t>(stride.count)));
  }
  charge_heap(machine, text.size() * sizeof(std::string_view));
  std::vector<std::string_view> letters = split_code_points(text);
  Builder out(machine);
  for (int64_t i = 0; i < stride.count; ++i) {
    out.add(letters[static_cast<size_t>(stride.start + i * stride.step)]);
  }
  return out.finish();
}

}  // namespace

Value binary(Machine& machine, Operator op, const Value& left, const Value& right) {
  if (op == Operator::concatenate) {
    Builder out(machine);
    out.add(to_text(machine, left));
    out.add(to_text(machine, right));
    return out.finish();
  }
  if (op >= Operator::equal) return compare(machine, op, left, right);
  std::optional<Number> a = as_number(left), b = as_number(right);
  if (a && b) {
    bool whole = a->whole && b->whole && op != Operator::divide &&
                 !(op == Operator::power && b->integer < 0);
    return whole ? whole_arithmetic(machine, op, a->integer, b->integer)
                 : real_arithmetic(machine, op, a->real, b->real);
  }
  if (!is<Undefined>(left) && (op == Operator::modulo || !is<Undefined>(right))) {
    if (std::optional<Value> result = sequence_operation(machine, op, left, right)) return *result;
  }
  require_defined(machine, left);
  require_defined(machine, right);
  fail(machine, "'{}' does not work between {} and {}", symbol(op), type_name(left),
       type_name(right));
}

Value negate(Machine& machine, const Value& value) {
  require_defined(machine, value);
  std::optional<Number> number = as_number(value);
  if (!number) fail(machine, "'-' does not work on {}", type_name(value));
  if (!number->whole) return -number->real;
  return whole_arithmetic(machine, Operator::subtract, 0, number->integer);
}

Value plus(Machine& machine, const Value& value) {
  require_defined(machine, value);
  std::optional<Number> number = as_number(value);
  if (!number) fail(machine, "'+' does not work on {}", type_name(value));
  if (!number->whole) return number->real;
  return number->integer;
}

bool compare(Machine& machine, Operator op, const Value& left, const Value& right) {
  switch (op) {
    case Operator::equal:
      return equal(machine, left, right);
    case Operator::not_equal:
      return !equal(machine, left, right);
    case Operator::in:
      return contains(machine, right, left);
    case Operator::not_in:
      return !contains(machine, right, left);
    default:
      break;
  }
  std::optional<Number> a = as_number(left), b = as_number(right);
  if (a && b && (std::isnan(a->real) || std::isnan(b->real))) return false;
  int sign = order(machine, left, right, symbol(op));
  if (op == Operator::less) return sign < 0;
  if (op == Operator::less_equal) return sign <= 0;
  if (op == Operator::greater) return sign > 0;
  return sign >= 0;
}

Value attribute(Machine& machine, const Value& object, std::string_view name) {
  require_defined(machine, object);
  if (std::optional<Value> method = bind_method(machine, object, name)) return *method;
  if (const Loop* const* loop = std::get_if<Loop*>(&object)) return loop_attribute(**loop, name);
  const Dict* members = nullptr;
  if (const Dict* const* dict = std::get_if<Dict*>(&object)) members = *dict;
  if (const Namespace* const* space = std::get_if<Namespace*>(&object))
    members = &(*space)->members;
  const Value* found = members != nullptr ? find(machine, *members, name) : nullptr;
  return found != nullptr ? *found : Undefined{name};
}

Value subscript(Machine& machine, const Value& object, const Value& key) {
  require_defined(machine, object);
  if (std::optional<Value> found = element(machine, object, key)) return *found;
  if (const auto* name = std::get_if<std::string_view>(&key)) {
    if (!is<Dict*>(object)) return attribute(machine, object, *name);
    if (std::optional<Value> method = bind_method(machine, object, *name)) return *method;
    return Undefined{*name};
  }
  Builder name(machine);
  name.add(type_name(object));
  name.add("[");
  name.add(to_repr(machine, key));
  name.add("]");
  return Undefined{name.finish()};
}

Value slice(Machine& machine, const Value& object, const SliceBounds& bounds) {
  require_defined(machine, object);
  if (!is_sequence(object)) fail(machine, "{} cannot be sliced", type_name(object));
  std::optional<Stride> stride = resolve(machine, bounds, length(machine, object));
  if (!stride) fail(machine, "a slice's bounds should be integers");
  if (const auto* text = std::get_if<std::string_view>(&object)) {
    return slice_text(machine, *text, *stride);
  }
  const List& list = *std::get<List*>(object);
  List* result = make_list(machine, list.tuple);
  for (int64_t i = 0; i < stride->count; ++i) {
    push(machine, *result, list.items[static_cast<size_t>(stride->start + i * stride->step)]);
  }
  return result;
}

}  // namespace tyto::jinja
