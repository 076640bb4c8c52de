#include "text/jinja/machine.h"

#include "base/utf8.h"

namespace tyto::jinja {
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
