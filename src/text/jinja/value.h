// The values a template computes with. Everything that a value points to belongs to the Machine
// of one rendering and lives until it ends: values are cheap to copy, cycles do no harm, and no
// destructor recurses.
#pragma once

#include <cstdint>
#include <ctime>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"

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

// The state of one rendering: variables, output, everything allocated, and the limits that make a
// hostile template an error instead of a hang.

inline constexpr uint64_t kMaxSteps = 2'000'000;         // expressions, statements, elements
inline constexpr uint64_t kMaxWork = uint64_t{1} << 29;  // bytes searched, compared or copied
inline constexpr uint64_t kMaxHeap = uint64_t{1} << 27;  // bytes allocated by one rendering
inline constexpr size_t kMaxText = size_t{1} << 24;      // bytes of the output or of one string
inline constexpr int kMaxDepth = 400;                    // nested evaluations, macro calls included
inline constexpr int64_t kMaxRange = 100'000;

struct Machine {
  std::string name;  // the template's, for errors
  int line = 1;      // where the evaluation is, for errors
  int depth = 0;
  uint64_t steps = 0;
  uint64_t work = 0;
  uint64_t heap = 0;

  std::string* output = nullptr;
  Scope* scope = nullptr;
  Value captured;  // the text that {% filter %} and {% set %} blocks hand to their filters
  std::tm now = {};

  // Deques: growing one moves nothing that a Value points to.
  std::deque<std::string> texts;
  std::deque<List> lists;
  std::deque<Dict> dicts;
  std::deque<Namespace> namespaces;
  std::deque<Scope> scopes;
  std::deque<Loop> loops;
  std::deque<Macro> macros;
  std::deque<BoundMethod> methods;
};

std::string where(const Machine& machine);

template <typename... Args>
[[noreturn]] void fail(const Machine& machine, fmt::format_string<Args...> format, Args&&... args) {
  fail_input(where(machine), format, std::forward<Args>(args)...);
}

// Values that must be defined.
void require_defined(const Machine& machine, const Value& value);

// For what Jinja has and this subset does not.
template <typename... Args>
[[noreturn]] void fail_construct(const Machine& machine, fmt::format_string<Args...> format,
                                 Args&&... args) {
  fail_unsupported(where(machine), format, std::forward<Args>(args)...);
}

void step(Machine& machine, uint64_t count = 1);
void charge_work(Machine& machine, uint64_t bytes);
void charge_heap(Machine& machine, uint64_t bytes);

std::string_view keep(Machine& machine, std::string text);  // already charged by its Builder
List* make_list(Machine& machine, bool tuple = false);
Value make_list(Machine& machine, std::vector<Value> items, bool tuple = false);
Dict* make_dict(Machine& machine);
Scope* make_scope(Machine& machine, Scope* parent);
void set_variable(Machine& machine, Scope& scope, std::string_view name, const Value& value);
void clear_variables(Machine& machine, Scope& scope);
void push(Machine& machine, List& list, const Value& value);
void write(Machine& machine, std::string_view text);

// Every string a template makes grows through this, so that none of them escapes the limits.
class Builder {
 public:
  explicit Builder(Machine& machine) : machine_(machine) {}
  void add(std::string_view text);
  void add(size_t count, char c);
  void add(size_t count, std::string_view text);
  std::string_view finish() { return keep(machine_, std::move(text_)); }

 private:
  Machine& machine_;
  std::string text_;
};

// Held while something recursive runs; also makes `line` the current one.
class Nesting {
 public:
  Nesting(Machine& machine, int line);
  explicit Nesting(Machine& machine) : Nesting(machine, machine.line) {}
  ~Nesting();
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  Machine& machine_;
  int outer_line_;
};

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
