#include "text/jinja_format.h"

#include <algorithm>
#include <cmath>

#include "base/printable.h"
#include "text/jinja_machine.h"
#include "text/jinja_unicode.h"

namespace tyto::jinja {
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
