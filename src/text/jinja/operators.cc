#include <algorithm>
#include <cmath>
#include <limits>

#include "base/utf8.h"
#include "text/jinja/builtins.h"
#include "text/jinja/value.h"

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
  if (op == Operator::power) return power_of(machine, a, b);
  if (op == Operator::add) {
    overflow = __builtin_add_overflow(a, b, &result);
  } else if (op == Operator::subtract) {
    overflow = __builtin_sub_overflow(a, b, &result);
  } else if (op == Operator::multiply) {
    overflow = __builtin_mul_overflow(a, b, &result);
  } else if (b == 0) {
    fail(machine, "division by zero");
  } else if (b == -1) {
    // The one quotient that does not fit is that of the smallest integer.
    overflow = op == Operator::floor_divide && __builtin_sub_overflow(int64_t{0}, a, &result);
  } else {
    int64_t remainder = a % b;
    if (remainder != 0 && (remainder < 0) != (b < 0)) remainder += b;
    result = op == Operator::modulo ? remainder : floor_quotient(a, b);
  }
  if (overflow) fail(machine, "integer overflow in '{}'", symbol(op));
  return result;
}

Value real_arithmetic(Machine& machine, Operator op, double a, double b) {
  if (op == Operator::add) return a + b;
  if (op == Operator::subtract) return a - b;
  if (op == Operator::multiply) return a * b;
  if (op == Operator::power) {
    if (a == 0 && b < 0) fail(machine, "zero to a negative power");
    double result = std::pow(a, b);
    if (!std::isfinite(result) && std::isfinite(a) && std::isfinite(b))
      fail(machine, "'**' has no finite result");
    return result;
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
  if (op == Operator::equal) return equal(machine, left, right);
  if (op == Operator::not_equal) return !equal(machine, left, right);
  if (op == Operator::in) return contains(machine, right, left);
  if (op == Operator::not_in) return !contains(machine, right, left);
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

namespace {

// Python shows the shortest digits that read back the same, always with a point or an exponent.
std::string real_text(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

// How a character is written between quotes; empty where it stands for itself.
std::string escape_of(char32_t c, char quote) {
  const auto code = static_cast<uint32_t>(c);
  if (c == static_cast<char32_t>(quote)) return {'\\', quote};
  if (c == '\\') return "\\\\";
  if (c == '\n') return "\\n";
  if (c == '\r') return "\\r";
  if (c == '\t') return "\\t";
  if (is_printable(c)) return "";
  if (code < 0x100) return fmt::format("\\x{:02x}", code);
  return code < 0x10000 ? fmt::format("\\u{:04x}", code) : fmt::format("\\U{:08x}", code);
}

void repr_text(Builder& out, std::string_view text) {
  const bool single = text.find('\'') == std::string_view::npos;
  const char quote = single || text.find('"') != std::string_view::npos ? '\'' : '"';
  out.add(1, quote);
  size_t plain = 0;  // where what stands for itself begins
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    if (const std::string escape = escape_of(c.value, quote); !escape.empty()) {
      out.add(text.substr(plain, at - plain));
      out.add(escape);
      plain = at + c.size;
    }
    at += c.size;
  }
  out.add(text.substr(plain));
  out.add(1, quote);
}

void repr(Machine& machine, Builder& out, const Value& value);

void repr_dict(Machine& machine, Builder& out, const Dict& dict) {
  out.add("{");
  for (size_t i = 0; i < dict.items.size(); ++i) {
    if (i > 0) out.add(", ");
    repr(machine, out, dict.items[i].first);
    out.add(": ");
    repr(machine, out, dict.items[i].second);
  }
  out.add("}");
}

void repr_list(Machine& machine, Builder& out, const List& list) {
  out.add(list.tuple ? "(" : "[");
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) out.add(", ");
    repr(machine, out, list.items[i]);
  }
  if (list.tuple && list.items.size() == 1) out.add(",");
  out.add(list.tuple ? ")" : "]");
}

void repr(Machine& machine, Builder& out, const Value& value) {
  Nesting nesting(machine);
  if (const bool* b = std::get_if<bool>(&value)) {
    out.add(*b ? "True" : "False");
  } else if (const int64_t* i = std::get_if<int64_t>(&value)) {
    out.add(fmt::format("{}", *i));
  } else if (const double* d = std::get_if<double>(&value)) {
    out.add(real_text(*d));
  } else if (const auto* text = std::get_if<std::string_view>(&value)) {
    repr_text(out, *text);
  } else if (const List* const* list = std::get_if<List*>(&value)) {
    repr_list(machine, out, **list);
  } else if (const Dict* const* dict = std::get_if<Dict*>(&value)) {
    repr_dict(machine, out, **dict);
  } else if (const Namespace* const* space = std::get_if<Namespace*>(&value)) {
    out.add("<Namespace ");
    repr_dict(machine, out, (*space)->members);
    out.add(">");
  } else if (is<None>(value)) {
    out.add("None");
  } else if (is<Undefined>(value)) {
    out.add("Undefined");
  } else {
    out.add(fmt::format("<{}>", type_name(value)));
  }
}

void json_text(Builder& out, std::string_view text, bool ensure_ascii) {
  static constexpr std::string_view kEscaped = "\"\\\n\r\t\b\f";
  static constexpr std::string_view kLetters = "\"\\nrtbf";
  out.add("\"");
  for (size_t at = 0; at < text.size();) {
    CodePoint c = code_point_at(text, at);
    size_t known = c.value < 0x80 ? kEscaped.find(static_cast<char>(c.value)) : kEscaped.npos;
    uint32_t unit = static_cast<uint32_t>(c.value);
    if (known != kEscaped.npos) {
      out.add(fmt::format("\\{}", kLetters[known]));
    } else if (unit >= 0x10000 && ensure_ascii) {
      out.add(fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((unit - 0x10000) >> 10),
                          0xDC00 + ((unit - 0x10000) & 0x3FF)));
    } else if (unit < 0x20 || (ensure_ascii && unit >= 0x7F)) {
      out.add(unit == 0x7F ? "\x7F" : fmt::format("\\u{:04x}", unit));
    } else {
      out.add(text.substr(at, c.size));
    }
    at += c.size;
  }
  out.add("\"");
}

struct JsonWriter {
  Machine& machine;
  Builder& out;
  const JsonStyle& style;
};

void json(const JsonWriter& writer, const Value& value, int64_t level);

void json_line(const JsonWriter& writer, int64_t level) {
  if (writer.style.indent < 0) return;
  writer.out.add("\n");
  writer.out.add(static_cast<size_t>(writer.style.indent * level), ' ');
}

std::string_view json_key(const JsonWriter& writer, const Value& key) {
  if (const auto* text = std::get_if<std::string_view>(&key)) return *text;
  if (const bool* b = std::get_if<bool>(&key)) return *b ? "true" : "false";
  if (is<None>(key)) return "null";
  if (as_number(key)) return to_text(writer.machine, key);
  fail(writer.machine, "tojson: a key cannot be a {}", type_name(key));
}

void json_dict(const JsonWriter& writer, const Dict& dict, int64_t level) {
  std::vector<std::pair<Value, Value>> items = dict.items;
  charge_heap(writer.machine, items.size() * 2 * sizeof(Value));
  if (writer.style.sort_keys) {
    std::stable_sort(items.begin(), items.end(), [&](const auto& a, const auto& b) {
      return order(writer.machine, a.first, b.first) < 0;
    });
  }
  writer.out.add("{");
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) writer.out.add(writer.style.item_separator);
    json_line(writer, level + 1);
    json_text(writer.out, json_key(writer, items[i].first), writer.style.ensure_ascii);
    writer.out.add(writer.style.key_separator);
    json(writer, items[i].second, level + 1);
  }
  if (!items.empty()) json_line(writer, level);
  writer.out.add("}");
}

void json_list(const JsonWriter& writer, const List& list, int64_t level) {
  writer.out.add("[");
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) writer.out.add(writer.style.item_separator);
    json_line(writer, level + 1);
    json(writer, list.items[i], level + 1);
  }
  if (!list.items.empty()) json_line(writer, level);
  writer.out.add("]");
}

void json(const JsonWriter& writer, const Value& value, int64_t level) {
  Nesting nesting(writer.machine);
  if (const auto* text = std::get_if<std::string_view>(&value)) {
    json_text(writer.out, *text, writer.style.ensure_ascii);
  } else if (const bool* b = std::get_if<bool>(&value)) {
    writer.out.add(*b ? "true" : "false");
  } else if (const double* d = std::get_if<double>(&value); d != nullptr && !std::isfinite(*d)) {
    writer.out.add(std::isnan(*d) ? "NaN" : (*d > 0 ? "Infinity" : "-Infinity"));
  } else if (as_number(value)) {
    writer.out.add(to_text(writer.machine, value));
  } else if (is<None>(value)) {
    writer.out.add("null");
  } else if (const List* const* list = std::get_if<List*>(&value)) {
    json_list(writer, **list, level);
  } else if (const Dict* const* dict = std::get_if<Dict*>(&value)) {
    json_dict(writer, **dict, level);
  } else {
    fail(writer.machine, "tojson: {} cannot be written as JSON", type_name(value));
  }
}

// What may stand between '%' and the conversion letter.
struct PercentSpec {
  bool zero = false;
  int width = 0;
  int precision = 6;
  char conversion = 0;
};

int read_small_number(std::string_view pattern, size_t& at) {
  int number = 0;
  for (; at < pattern.size() && pattern[at] >= '0' && pattern[at] <= '9'; ++at) {
    number = std::min(number * 10 + (pattern[at] - '0'), 1000);
  }
  return number;
}

PercentSpec read_percent_spec(std::string_view pattern, size_t& at) {
  PercentSpec spec;
  if (at < pattern.size() && pattern[at] == '0') {
    spec.zero = true;
    ++at;
  }
  spec.width = read_small_number(pattern, at);
  if (at < pattern.size() && pattern[at] == '.') {
    ++at;
    spec.precision = read_small_number(pattern, at);
  }
  if (at < pattern.size()) spec.conversion = pattern[at++];
  return spec;
}

std::string percent_number(Machine& machine, const PercentSpec& spec, const Value& value) {
  std::optional<Number> number = as_number(value);
  if (!number) fail(machine, "%{} needs a number, not {}", spec.conversion, type_name(value));
  if (spec.conversion == 'f') {
    return spec.zero ? fmt::format("{:0{}.{}f}", number->real, spec.width, spec.precision)
                     : fmt::format("{:{}.{}f}", number->real, spec.width, spec.precision);
  }
  int64_t whole = number->integer;
  if (!number->whole) {
    if (!(std::abs(number->real) < 9e18)) fail(machine, "integer overflow");
    whole = static_cast<int64_t>(number->real);
  }
  if (spec.conversion == 'x') {
    return spec.zero ? fmt::format("{:0{}x}", whole, spec.width)
                     : fmt::format("{:{}x}", whole, spec.width);
  }
  return spec.zero ? fmt::format("{:0{}}", whole, spec.width)
                   : fmt::format("{:{}}", whole, spec.width);
}

}  // namespace

std::string_view to_text(Machine& machine, const Value& value) {
  if (const auto* text = std::get_if<std::string_view>(&value)) return *text;
  if (is<Undefined>(value)) return "";
  return to_repr(machine, value);
}

std::string_view to_repr(Machine& machine, const Value& value) {
  Builder out(machine);
  repr(machine, out, value);
  return out.finish();
}

std::string_view to_json(Machine& machine, const Value& value, const JsonStyle& style) {
  if (style.indent > 1000) fail(machine, "tojson: an indent of {} is too large", style.indent);
  Builder out(machine);
  json({machine, out, style}, value, 0);
  return out.finish();
}

std::string_view format_percent(Machine& machine, std::string_view pattern,
                                const std::vector<Value>& values) {
  Builder out(machine);
  size_t used = 0;
  for (size_t at = 0; at < pattern.size();) {
    size_t percent = std::min(pattern.find('%', at), pattern.size());
    out.add(pattern.substr(at, percent - at));
    if (percent == pattern.size()) break;
    at = percent + 1;
    PercentSpec spec = read_percent_spec(pattern, at);
    if (spec.conversion == '%') {
      out.add("%");
      continue;
    }
    if (spec.conversion == 0 ||
        std::string_view("srdixf").find(spec.conversion) == std::string_view::npos) {
      fail_construct(machine, "unknown conversion '{}' in a % format",
                     printable_name(pattern.substr(percent, at - percent)));
    }
    if (used == values.size()) fail(machine, "a % format has more conversions than values");
    const Value& value = values[used++];
    if (spec.conversion == 's' || spec.conversion == 'r') {
      std::string_view text =
          spec.conversion == 's' ? to_text(machine, value) : to_repr(machine, value);
      size_t shown_size = count_code_points(text);
      size_t width = static_cast<size_t>(spec.width);
      if (shown_size < width) out.add(width - shown_size, ' ');
      out.add(text);
    } else {
      out.add(percent_number(machine, spec, value));
    }
  }
  if (used < values.size()) fail(machine, "a % format has fewer conversions than values");
  return out.finish();
}

std::string_view format_braces(Machine& machine, std::string_view pattern,
                               const Arguments& values) {
  Builder out(machine);
  size_t automatic = 0;
  for (size_t at = 0; at < pattern.size();) {
    size_t brace = std::min(pattern.find_first_of("{}", at), pattern.size());
    out.add(pattern.substr(at, brace - at));
    if (brace == pattern.size()) break;
    if (brace + 1 < pattern.size() && pattern[brace + 1] == pattern[brace]) {
      out.add(1, pattern[brace]);
      at = brace + 2;
      continue;
    }
    size_t end = pattern.find('}', brace);
    if (pattern[brace] == '}' || end == pattern.npos) fail(machine, "format: single brace");
    std::string_view field = pattern.substr(brace + 1, end - brace - 1);
    at = end + 1;
    if (field.find_first_of(":!.[{") != field.npos) {
      fail_construct(machine, "format: unknown field '{{{}}}'", printable_name(field));
    }
    size_t digits = 0;
    size_t index = static_cast<size_t>(read_small_number(field, digits));
    const Value* value = nullptr;
    if (digits == field.size()) {
      if (field.empty()) index = automatic++;
      if (index < values.positional.size()) value = &values.positional[index];
    }
    for (const auto& [name, named] : values.named) {
      if (name == field) value = &named;
    }
    if (value == nullptr) fail(machine, "format: no value for '{{{}}}'", printable_name(field));
    out.add(to_text(machine, *value));
  }
  return out.finish();
}

}  // namespace tyto::jinja
