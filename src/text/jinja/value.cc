#include "text/jinja/value.h"

#include <cmath>

#include "base/utf8.h"
#include "text/jinja/builtins.h"

namespace tyto::jinja {
namespace {

// Linear look-ups are charged by the elements they may visit.
constexpr size_t kElementsPerStep = 8;

bool equal_lists(Machine& machine, const List& left, const List& right) {
  if (left.tuple != right.tuple || left.items.size() != right.items.size()) return false;
  for (size_t i = 0; i < left.items.size(); ++i) {
    if (!equal(machine, left.items[i], right.items[i])) return false;
  }
  return true;
}

bool equal_dicts(Machine& machine, const Dict& left, const Dict& right) {
  if (left.items.size() != right.items.size()) return false;
  for (const auto& [key, value] : left.items) {
    const Value* other = find(machine, right, key);
    if (other == nullptr || !equal(machine, value, *other)) return false;
  }
  return true;
}

template <typename T>
int order_of(const T& left, const T& right) {
  return left < right ? -1 : (right < left ? 1 : 0);
}

int order_lists(Machine& machine, const List& left, const List& right, std::string_view symbol) {
  size_t shared = std::min(left.items.size(), right.items.size());
  for (size_t i = 0; i < shared; ++i) {
    if (!equal(machine, left.items[i], right.items[i])) {
      return order(machine, left.items[i], right.items[i], symbol);
    }
  }
  return order_of(left.items.size(), right.items.size());
}

void require_hashable(Machine& machine, const Value& key) {
  const List* const* list = std::get_if<List*>(&key);
  if (is<Dict*>(key) || (list != nullptr && !(*list)->tuple)) {
    fail(machine, "a {} cannot be a key", type_name(key));
  }
}

}  // namespace

std::optional<Number> as_number(const Value& value) {
  if (const bool* b = std::get_if<bool>(&value)) return Number{true, *b, *b ? 1.0 : 0.0};
  if (const int64_t* i = std::get_if<int64_t>(&value)) {
    return Number{true, *i, static_cast<double>(*i)};
  }
  if (const double* d = std::get_if<double>(&value)) return Number{false, 0, *d};
  return std::nullopt;
}

std::string_view type_name(const Value& value) {
  static constexpr std::string_view kNames[] = {
      "Undefined", "NoneType",  "bool",     "int",    "float", "str",        "list",
      "dict",      "Namespace", "function", "method", "Macro", "LoopContext"};
  static_assert(std::size(kNames) == std::variant_size_v<Value>);
  if (const List* const* list = std::get_if<List*>(&value); list != nullptr && (*list)->tuple) {
    return "tuple";
  }
  return kNames[value.index()];
}

bool truthy(const Value& value) {
  if (is<Undefined>(value) || is<None>(value)) return false;
  if (std::optional<Number> number = as_number(value)) return number->real != 0;
  if (const auto* text = std::get_if<std::string_view>(&value)) return !text->empty();
  if (const List* const* list = std::get_if<List*>(&value)) return !(*list)->items.empty();
  if (const Dict* const* dict = std::get_if<Dict*>(&value)) return !(*dict)->items.empty();
  return true;
}

bool equal(Machine& machine, const Value& left, const Value& right) {
  Nesting nesting(machine);
  std::optional<Number> a = as_number(left), b = as_number(right);
  if (a && b) return a->whole && b->whole ? a->integer == b->integer : a->real == b->real;
  if (left.index() != right.index()) return false;
  if (is<Undefined>(left) || is<None>(left)) return true;
  if (const auto* text = std::get_if<std::string_view>(&left)) {
    charge_work(machine, text->size());
    return *text == std::get<std::string_view>(right);
  }
  if (List* const* list = std::get_if<List*>(&left)) {
    List* other = std::get<List*>(right);
    return *list == other || equal_lists(machine, **list, *other);
  }
  if (Dict* const* dict = std::get_if<Dict*>(&left)) {
    Dict* other = std::get<Dict*>(right);
    return *dict == other || equal_dicts(machine, **dict, *other);
  }
  return std::visit(
      [&](const auto& pointer) {
        using T = std::decay_t<decltype(pointer)>;
        if constexpr (std::is_pointer_v<T>) {
          return pointer == std::get<T>(right);
        } else {
          return false;
        }
      },
      left);
}

int order(Machine& machine, const Value& left, const Value& right, std::string_view symbol) {
  Nesting nesting(machine);
  std::optional<Number> a = as_number(left), b = as_number(right);
  if (a && b) {
    return a->whole && b->whole ? order_of(a->integer, b->integer) : order_of(a->real, b->real);
  }
  const auto* left_text = std::get_if<std::string_view>(&left);
  const auto* right_text = std::get_if<std::string_view>(&right);
  if (left_text != nullptr && right_text != nullptr) {
    // The byte order of UTF-8 is the order of its code points.
    charge_work(machine, std::min(left_text->size(), right_text->size()));
    return left_text->compare(*right_text);
  }
  const List* const* left_list = std::get_if<List*>(&left);
  const List* const* right_list = std::get_if<List*>(&right);
  if (left_list != nullptr && right_list != nullptr &&
      (*left_list)->tuple == (*right_list)->tuple) {
    return order_lists(machine, **left_list, **right_list, symbol);
  }
  for (const Value* side : {&left, &right}) {
    if (const Undefined* u = std::get_if<Undefined>(side)) {
      fail(machine, "'{}' is undefined", printable_name(u->name));
    }
  }
  fail(machine, "'{}' does not work between {} and {}", symbol, type_name(left), type_name(right));
}

bool contains(Machine& machine, const Value& container, const Value& item) {
  if (const auto* text = std::get_if<std::string_view>(&container)) {
    const auto* part = std::get_if<std::string_view>(&item);
    if (part == nullptr) fail(machine, "'in' looks for {} in a str", type_name(item));
    charge_work(machine, text->size());
    return find_text(*text, *part) != std::string_view::npos;
  }
  if (const List* const* list = std::get_if<List*>(&container)) {
    for (const Value& each : (*list)->items) {
      if (equal(machine, each, item)) return true;
    }
    return false;
  }
  if (const Dict* const* dict = std::get_if<Dict*>(&container)) {
    return find(machine, **dict, item) != nullptr;
  }
  if (is<Undefined>(container)) return false;
  fail(machine, "'in' does not work on {}", type_name(container));
}

int64_t length(Machine& machine, const Value& value) {
  if (const auto* text = std::get_if<std::string_view>(&value)) {
    charge_work(machine, text->size());
    return static_cast<int64_t>(count_code_points(*text));
  }
  if (const List* const* list = std::get_if<List*>(&value)) {
    return static_cast<int64_t>((*list)->items.size());
  }
  if (const Dict* const* dict = std::get_if<Dict*>(&value)) {
    return static_cast<int64_t>((*dict)->items.size());
  }
  if (const Loop* const* loop = std::get_if<Loop*>(&value)) {
    return static_cast<int64_t>((*loop)->items.size());
  }
  if (is<Undefined>(value)) return 0;
  fail(machine, "{} has no length", type_name(value));
}

std::vector<Value> iterate(Machine& machine, const Value& value) {
  std::vector<Value> result;
  if (const auto* text = std::get_if<std::string_view>(&value)) {
    charge_heap(machine, text->size() * (sizeof(Value) + sizeof(std::string_view)));
    for (std::string_view each : split_code_points(*text)) result.emplace_back(each);
  } else if (const List* const* list = std::get_if<List*>(&value)) {
    charge_heap(machine, (*list)->items.size() * sizeof(Value));
    result = (*list)->items;
  } else if (const Dict* const* dict = std::get_if<Dict*>(&value)) {
    charge_heap(machine, (*dict)->items.size() * sizeof(Value));
    for (const auto& [key, unused] : (*dict)->items) result.push_back(key);
  } else if (!is<Undefined>(value)) {
    fail(machine, "{} cannot be iterated over", type_name(value));
  }
  return result;
}

const Value* find(Machine& machine, const Dict& dict, const Value& key) {
  step(machine, 1 + dict.items.size() / kElementsPerStep);
  for (const auto& [each, value] : dict.items) {
    if (each.index() == key.index() || as_number(each)) {
      if (equal(machine, each, key)) return &value;
    }
  }
  return nullptr;
}

void assign(Machine& machine, Dict& dict, const Value& key, const Value& value) {
  require_hashable(machine, key);
  if (const Value* old = find(machine, dict, key)) {
    const_cast<Value&>(*old) = value;
    return;
  }
  charge_heap(machine, 2 * sizeof(Value));
  dict.items.emplace_back(key, value);
}

namespace {

constexpr size_t kVariableBytes = 80;  // what a variable takes in its scope's map, about

}  // namespace

std::string where(const Machine& machine) {
  return fmt::format("chat template {}: line {}", machine.name, machine.line);
}

void step(Machine& machine, uint64_t count) {
  machine.steps += count;
  if (machine.steps > kMaxSteps) {
    fail(machine, "the template takes more than {} steps", kMaxSteps);
  }
}

void charge_work(Machine& machine, uint64_t bytes) {
  machine.work += bytes;
  if (machine.work > kMaxWork) {
    fail(machine, "the template processes more than {} MB of text", kMaxWork >> 20);
  }
}

void charge_heap(Machine& machine, uint64_t bytes) {
  machine.heap += bytes;
  if (machine.heap > kMaxHeap) {
    fail(machine, "the template needs more than {} MB of memory", kMaxHeap >> 20);
  }
}

std::string_view keep(Machine& machine, std::string text) {
  charge_heap(machine, sizeof(std::string));
  return machine.texts.emplace_back(std::move(text));
}

List* make_list(Machine& machine, bool tuple) {
  charge_heap(machine, sizeof(List));
  List& list = machine.lists.emplace_back();
  list.tuple = tuple;
  return &list;
}

Value make_list(Machine& machine, std::vector<Value> items, bool tuple) {
  charge_heap(machine, items.size() * sizeof(Value));
  List* list = make_list(machine, tuple);
  list->items = std::move(items);
  return list;
}

Dict* make_dict(Machine& machine) {
  charge_heap(machine, sizeof(Dict));
  return &machine.dicts.emplace_back();
}

Scope* make_scope(Machine& machine, Scope* parent) {
  charge_heap(machine, sizeof(Scope));
  Scope& scope = machine.scopes.emplace_back();
  scope.parent = parent;
  return &scope;
}

void set_variable(Machine& machine, Scope& scope, std::string_view name, const Value& value) {
  if (scope.variables.insert_or_assign(name, value).second) charge_heap(machine, kVariableBytes);
}

void clear_variables(Machine& machine, Scope& scope) {
  machine.heap -= scope.variables.size() * kVariableBytes;
  scope.variables.clear();
}

void push(Machine& machine, List& list, const Value& value) {
  charge_heap(machine, sizeof(Value));
  list.items.push_back(value);
}

void write(Machine& machine, std::string_view text) {
  if (text.size() > kMaxText - machine.output->size()) {
    fail(machine, "the output is larger than {} MB", kMaxText >> 20);
  }
  charge_work(machine, text.size());
  machine.output->append(text);
}

void Builder::add(std::string_view text) {
  if (text.size() > kMaxText - text_.size()) {
    fail(machine_, "a string grows larger than {} MB", kMaxText >> 20);
  }
  charge_heap(machine_, text.size());
  text_.append(text);
}

void Builder::add(size_t count, char c) {
  add(count, std::string_view(&c, 1));
}

void Builder::add(size_t count, std::string_view text) {
  if (text.empty()) return;
  if (count > (kMaxText - text_.size()) / text.size()) {
    fail(machine_, "a string grows larger than {} MB", kMaxText >> 20);
  }
  charge_heap(machine_, count * text.size());
  if (text.size() == 1) {
    text_.append(count, text[0]);
  } else {
    for (size_t i = 0; i < count; ++i) text_.append(text);
  }
}

void require_defined(const Machine& machine, const Value& value) {
  if (const Undefined* undefined = std::get_if<Undefined>(&value))
    fail(machine, "'{}' is undefined", printable_name(undefined->name));
}

Nesting::Nesting(Machine& machine, int line) : machine_(machine), outer_line_(machine.line) {
  machine.line = line;
  step(machine);
  if (machine.depth >= kMaxDepth) fail(machine, "nested too deeply");
  ++machine.depth;
}

Nesting::~Nesting() {
  --machine_.depth;
  machine_.line = outer_line_;
}

}  // namespace tyto::jinja
