// The values a template computes with. Everything that a value points to belongs to the Machine
// of one rendering and lives until it ends: values are cheap to copy, cycles do no harm, and no
// destructor recurses.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace tyto::jinja {

struct Machine;
struct List;
struct Dict;
struct Namespace;
struct Builtin;
struct BoundMethod;
struct Macro;
struct Loop;
struct Stmt;

struct Undefined {
  std::string_view name;  // for the complaint when it is used
};
struct None {};

using Value = std::variant<Undefined, None, bool, int64_t, double, std::string_view, List*, Dict*,
                           Namespace*, const Builtin*, const BoundMethod*, const Macro*, Loop*>;

struct List {
  std::vector<Value> items;
  bool tuple = false;
};

// Keeps insertion order. Chat data is small, so look-ups are linear; they are paid for in steps.
struct Dict {
  std::vector<std::pair<Value, Value>> items;
};

// What namespace() makes: the one thing a loop body can assign to and leave behind.
struct Namespace {
  Dict members;
};

struct Scope {
  Scope* parent = nullptr;
  std::unordered_map<std::string_view, Value> variables;
};

struct Loop {
  std::vector<Value> items;
  size_t index = 0;
  Value last_changed;  // a List* after the first loop.changed()
};

struct Macro {
  const Stmt* definition = nullptr;
  Scope* closure = nullptr;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> named;
};

// A builtin's arguments, by the position of their name in `parameters`; null where not given.
struct Call {
  const Value* given[5] = {};
  const Arguments& all;
};

// One line of the tables of filters, tests, methods and functions. `parameters` names what may be
// given, separated by blanks, optional ones with a question mark; "*" passes everything through.
struct Builtin {
  std::string_view name;
  std::string_view parameters;
  Value (*run)(Machine& machine, const Value& self, const Call& call);
};

struct BoundMethod {
  const Builtin* method = nullptr;
  Value self;
};

template <typename T>
bool is(const Value& value) {
  return std::holds_alternative<T>(value);
}

// A bool counts as a number, as in Python.
struct Number {
  bool whole = true;
  int64_t integer = 0;
  double real = 0;  // set in both cases
};
std::optional<Number> as_number(const Value& value);

std::string_view type_name(const Value& value);  // as Python calls it: "str", "int", "dict", ...
bool truthy(const Value& value);

// These recurse into containers, so they can fail: too deep, too many steps.
bool equal(Machine& machine, const Value& left, const Value& right);
// Negative, zero or positive; `symbol` is the operator to blame when the two have no order.
int order(Machine& machine, const Value& left, const Value& right, std::string_view symbol = "<");
bool contains(Machine& machine, const Value& container, const Value& item);
int64_t length(Machine& machine, const Value& value);
std::vector<Value> iterate(Machine& machine, const Value& value);

const Value* find(Machine& machine, const Dict& dict, const Value& key);
void assign(Machine& machine, Dict& dict, const Value& key, const Value& value);

}  // namespace tyto::jinja
