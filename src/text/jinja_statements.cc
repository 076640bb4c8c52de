// The half of the evaluator that runs statements.
#include "base/printable.h"
#include "text/jinja_evaluator.h"
#include "text/jinja_format.h"

namespace tyto::jinja {
namespace {

enum class Flow { next, break_loop, continue_loop };

Flow run_block(Machine& machine, const Block& block);

// What the body of a variable scope does; restored when it ends. An Error ends the rendering
// altogether, so nothing needs to be restored on that way.
Flow run_scoped(Machine& machine, Scope* scope, const Block& block) {
  Scope* outer = machine.scope;
  machine.scope = scope;
  Flow flow = run_block(machine, block);
  machine.scope = outer;
  return flow;
}

std::string_view capture(Machine& machine, Scope* scope, const Block& block) {
  std::string text;
  std::string* outer = machine.output;
  machine.output = &text;
  run_scoped(machine, scope, block);
  machine.output = outer;
  charge_heap(machine, text.size());
  return keep(machine, std::move(text));
}

void assign_target(Machine& machine, const Target& target, const Value& value) {
  if (target.attribute.empty()) {
    set_variable(machine, *machine.scope, target.name, value);
    return;
  }
  for (Scope* scope = machine.scope; scope != nullptr; scope = scope->parent) {
    auto found = scope->variables.find(target.name);
    if (found == scope->variables.end()) continue;
    if (Namespace* const* space = std::get_if<Namespace*>(&found->second)) {
      assign(machine, (*space)->members, target.attribute, value);
      return;
    }
    break;
  }
  fail(machine, "'{}.{}' cannot be set: '{}' is not a namespace", target.name, target.attribute,
       target.name);
}

void assign_targets(Machine& machine, const Stmt& stmt, const Value& value) {
  if (!stmt.unpack) {
    assign_target(machine, stmt.targets[0], value);
    return;
  }
  if (const Undefined* u = std::get_if<Undefined>(&value)) {
    fail(machine, "'{}' is undefined", printable_name(u->name));
  }
  std::vector<Value> parts = iterate(machine, value);
  if (parts.size() != stmt.targets.size()) {
    fail(machine, "{} values for {} names", parts.size(), stmt.targets.size());
  }
  for (size_t i = 0; i < parts.size(); ++i) assign_target(machine, stmt.targets[i], parts[i]);
}

// The elements a loop goes through: all, or those its `if` lets pass.
std::vector<Value> loop_items(Machine& machine, const Stmt& stmt, Scope* scope) {
  std::vector<Value> items = iterate(machine, evaluate(machine, *stmt.value));
  if (stmt.condition == nullptr) return items;
  std::vector<Value> passed;
  Scope* outer = machine.scope;
  machine.scope = scope;
  for (const Value& item : items) {
    assign_targets(machine, stmt, item);
    if (truthy(evaluate(machine, *stmt.condition))) passed.push_back(item);
  }
  machine.scope = outer;
  return passed;
}

Flow run_loop(Machine& machine, const Stmt& stmt) {
  Scope* scope = make_scope(machine, machine.scope);
  std::vector<Value> items = loop_items(machine, stmt, scope);
  if (items.empty()) return run_scoped(machine, scope, stmt.otherwise);
  Scope* outer = machine.scope;
  machine.scope = scope;
  charge_heap(machine, sizeof(Loop));
  Loop& loop = machine.loops.emplace_back();
  loop.items = std::move(items);
  for (; loop.index < loop.items.size(); ++loop.index) {
    step(machine);
    clear_variables(machine, *scope);  // what one round sets, the next does not see
    set_variable(machine, *scope, "loop", &loop);
    assign_targets(machine, stmt, loop.items[loop.index]);
    if (run_block(machine, stmt.body) == Flow::break_loop) break;
  }
  machine.scope = outer;
  return Flow::next;
}

Flow run_branch(Machine& machine, const Stmt& stmt) {
  for (const Branch& branch : stmt.branches) {
    if (branch.condition == nullptr || truthy(evaluate(machine, *branch.condition))) {
      return run_block(machine, branch.body);
    }
  }
  return Flow::next;
}

void run_assign_block(Machine& machine, const Stmt& stmt) {
  Value value = capture(machine, make_scope(machine, machine.scope), stmt.body);
  if (stmt.value != nullptr) {
    machine.captured = value;
    value = evaluate(machine, *stmt.value);
  }
  assign_target(machine, stmt.targets[0], value);
}

void run_macro_definition(Machine& machine, const Stmt& stmt) {
  charge_heap(machine, sizeof(Macro));
  const Macro& macro = machine.macros.emplace_back(Macro{&stmt, machine.scope});
  set_variable(machine, *machine.scope, stmt.text, &macro);
}

void run_filter(Machine& machine, const Stmt& stmt) {
  machine.captured = capture(machine, make_scope(machine, machine.scope), stmt.body);
  write(machine, to_text(machine, evaluate(machine, *stmt.value)));
}

Flow run_with(Machine& machine, const Stmt& stmt) {
  Scope* scope = make_scope(machine, machine.scope);
  for (const auto& [name, expr] : stmt.parameters) {
    set_variable(machine, *scope, name, evaluate(machine, *expr));
  }
  return run_scoped(machine, scope, stmt.body);
}

Flow run_statement(Machine& machine, const Stmt& stmt) {
  Nesting nesting(machine, stmt.line);
  switch (stmt.kind) {
    case StmtKind::text:
      write(machine, stmt.text);
      break;
    case StmtKind::print:
      write(machine, to_text(machine, evaluate(machine, *stmt.value)));
      break;
    case StmtKind::branch:
      return run_branch(machine, stmt);
    case StmtKind::loop:
      return run_loop(machine, stmt);
    case StmtKind::assign:
      assign_targets(machine, stmt, evaluate(machine, *stmt.value));
      break;
    case StmtKind::assign_block:
      run_assign_block(machine, stmt);
      break;
    case StmtKind::macro:
      run_macro_definition(machine, stmt);
      break;
    case StmtKind::filter:
      run_filter(machine, stmt);
      break;
    case StmtKind::with:
      return run_with(machine, stmt);
    case StmtKind::break_loop:
      return Flow::break_loop;
    case StmtKind::continue_loop:
      return Flow::continue_loop;
  }
  return Flow::next;
}

Flow run_block(Machine& machine, const Block& block) {
  for (const Stmt& stmt : block) {
    Flow flow = run_statement(machine, stmt);
    if (flow != Flow::next) return flow;
  }
  return Flow::next;
}

// Whether an argument was given by name for this parameter; counts those that were used.
const Value* named_argument(const Arguments& arguments, std::string_view name, size_t& used) {
  for (const auto& [each, value] : arguments.named) {
    if (each == name) {
      ++used;
      return &value;
    }
  }
  return nullptr;
}

}  // namespace

Value call_macro(Machine& machine, const Macro& macro, const Arguments& arguments) {
  Nesting nesting(machine);
  const Stmt& definition = *macro.definition;
  if (arguments.positional.size() > definition.parameters.size()) {
    fail(machine, "macro '{}' takes at most {} arguments", printable_name(definition.text),
         definition.parameters.size());
  }
  Scope* scope = make_scope(machine, macro.closure);
  Scope* outer = machine.scope;
  machine.scope = scope;
  size_t named_used = 0;
  for (size_t i = 0; i < definition.parameters.size(); ++i) {
    const auto& [name, fallback] = definition.parameters[i];
    Value value = Undefined{name};
    const Value* named = named_argument(arguments, name, named_used);
    if (i < arguments.positional.size()) {
      if (named != nullptr)
        fail(machine, "macro argument '{}' is given twice", printable_name(name));
      value = arguments.positional[i];
    } else if (named != nullptr) {
      value = *named;
    } else if (fallback != nullptr) {
      value = evaluate(machine, *fallback);
    }
    set_variable(machine, *scope, name, value);
  }
  if (named_used < arguments.named.size()) {
    fail(machine, "macro '{}' is given an argument it does not have",
         printable_name(definition.text));
  }
  machine.scope = outer;
  return capture(machine, scope, definition.body);
}

void execute(Machine& machine, const Program& program) {
  run_block(machine, program.body);
}

}  // namespace tyto::jinja
