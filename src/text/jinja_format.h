// Values as text: what {{ }} prints, what repr() shows, JSON, and the two ways to fill a pattern.
#pragma once

#include <cstdint>
#include <string_view>

#include "text/jinja_value.h"

namespace tyto::jinja {

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
