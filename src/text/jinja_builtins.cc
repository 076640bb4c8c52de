#include "text/jinja_builtins.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/printable.h"
#include "text/jinja_machine.h"
#include "text/jinja_operators.h"
#include "text/jinja_unicode.h"

namespace tyto::jinja {
namespace {

const Builtin* find_in(std::span<const Builtin> table, std::string_view name) {
  for (const Builtin& each : table) {
    if (each.name == name) return &each;
  }
  return nullptr;
}

std::vector<std::string_view> words(std::string_view text) {
  std::vector<std::string_view> result;
  while (!text.empty()) {
    size_t end = std::min(text.find(' '), text.size());
    result.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return result;
}

void bind(Machine& machine, const Builtin& builtin, const Arguments& arguments, Call& call) {
  std::vector<std::string_view> parameters = words(builtin.parameters);
  TYTO_ASSERT(parameters.size() <= std::size(call.given));
  if (arguments.positional.size() > parameters.size()) {
    fail(machine, "'{}' takes at most {} arguments", builtin.name, parameters.size());
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    call.given[i] = &arguments.positional[i];
  }
  std::vector<std::string_view> names = parameters;
  for (std::string_view& name : names) {
    if (name.ends_with('?')) name.remove_suffix(1);
  }
  for (const auto& [name, value] : arguments.named) {
    size_t i = static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
    if (i == names.size())
      fail(machine, "'{}' has no argument '{}'", builtin.name, printable_name(name));
    if (call.given[i] != nullptr) {
      fail(machine, "'{}' is given argument '{}' twice", builtin.name, name);
    }
    call.given[i] = &value;
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (call.given[i] == nullptr && !parameters[i].ends_with('?')) {
      fail(machine, "'{}' needs argument '{}'", builtin.name, parameters[i]);
    }
  }
}

}  // namespace

const Builtin* find_filter(std::string_view name) {
  const Builtin* found = find_in(text_filters(), name);
  return found != nullptr ? found : find_in(sequence_filters(), name);
}

const Builtin* find_test(std::string_view name) {
  return find_in(tests(), name);
}

const Builtin* find_function(std::string_view name) {
  return find_in(functions(), name);
}

const Builtin* find_method(const Value& self, std::string_view name) {
  if (is<std::string_view>(self)) return find_in(text_methods(), name);
  return find_in(container_methods(self), name);
}

Value call_builtin(Machine& machine, const Builtin& builtin, const Value& self,
                   const Arguments& arguments) {
  Nesting nesting(machine);
  Call call{.given = {}, .all = arguments};
  if (builtin.parameters != "*") bind(machine, builtin, arguments, call);
  return builtin.run(machine, self, call);
}

std::string_view replace_text(Machine& machine, std::string_view text, std::string_view old,
                              std::string_view fresh, int64_t limit) {
  charge_work(machine, text.size());
  if (limit < 0) limit = std::numeric_limits<int64_t>::max();
  Builder out(machine);
  size_t at = 0;
  for (; limit != 0; --limit) {
    size_t found = find_text(text, old, at);
    if (found == std::string_view::npos) break;
    out.add(text.substr(at, found - at));
    out.add(fresh);
    at = found + old.size();
    if (!old.empty()) continue;
    // Python puts `fresh` before every code point and at the end.
    if (at == text.size()) break;
    size_t size = code_point_at(text, at).size;
    out.add(text.substr(at, size));
    at += size;
  }
  out.add(text.substr(at));
  return out.finish();
}

std::string_view in_case(Machine& machine, std::string_view text, Case wanted) {
  charge_heap(machine, 2 * text.size());  // a mapped letter is at most half as long again
  return keep(machine, change_case(text, wanted));
}

bool given_truthy(const Value* argument) {
  return argument != nullptr && truthy(*argument);
}

int64_t given_integer(Machine& machine, const Value* argument, int64_t fallback) {
  if (argument == nullptr) return fallback;
  std::optional<Number> number = as_number(*argument);
  if (!number || !number->whole) {
    fail(machine, "an argument should be an int and is {}", type_name(*argument));
  }
  return number->integer;
}

std::string_view given_text(Machine& machine, const Value* argument) {
  const auto* text = argument != nullptr ? std::get_if<std::string_view>(argument) : nullptr;
  if (text == nullptr) {
    fail(machine, "an argument should be a str and is {}",
         argument != nullptr ? type_name(*argument) : "missing");
  }
  return *text;
}

Value dotted_attribute(Machine& machine, const Value& value, std::string_view path) {
  Value current = value;
  for (;;) {
    size_t dot = std::min(path.find('.'), path.size());
    std::string_view name = path.substr(0, dot);
    int64_t index = 0;
    auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
    bool number = !name.empty() && error == std::errc() && end == name.data() + name.size();
    current = subscript(machine, current, number ? Value(index) : Value(name));
    if (dot == path.size()) return current;
    path.remove_prefix(dot + 1);
  }
}

}  // namespace tyto::jinja
