#include "text/jinja_evaluator.h"

#include "base/printable.h"
#include "text/jinja_builtins.h"
#include "text/jinja_operators.h"

namespace tyto::jinja {
namespace {

Value look_up(Machine& machine, std::string_view name) {
  for (const Scope* scope = machine.scope; scope != nullptr; scope = scope->parent) {
    step(machine);
    auto found = scope->variables.find(name);
    if (found != scope->variables.end()) return found->second;
  }
  if (const Builtin* function = find_function(name)) return function;
  return Undefined{name};
}

Arguments evaluate_arguments(Machine& machine, const Expr& call) {
  Arguments arguments;
  for (size_t i = 1; i < call.children.size(); ++i) {
    arguments.positional.push_back(evaluate(machine, *call.children[i]));
  }
  for (const auto& [name, expr] : call.keywords) {
    arguments.named.emplace_back(name, evaluate(machine, *expr));
  }
  return arguments;
}

Value evaluate_elements(Machine& machine, const Expr& expr) {
  List* list = make_list(machine, expr.kind == ExprKind::tuple);
  for (const Expr* child : expr.children) push(machine, *list, evaluate(machine, *child));
  return list;
}

Value evaluate_dict(Machine& machine, const Expr& expr) {
  Dict* dict = make_dict(machine);
  for (size_t i = 0; i + 1 < expr.children.size(); i += 2) {
    Value key = evaluate(machine, *expr.children[i]);
    assign(machine, *dict, key, evaluate(machine, *expr.children[i + 1]));
  }
  return dict;
}

Value evaluate_slice(Machine& machine, const Expr& expr) {
  Value object = evaluate(machine, *expr.children[0]);
  SliceBounds bounds;
  Value* parts[] = {&bounds.start, &bounds.stop, &bounds.step};
  for (size_t i = 0; i < 3; ++i) {
    if (expr.children[i + 1] != nullptr) *parts[i] = evaluate(machine, *expr.children[i + 1]);
  }
  return slice(machine, object, bounds);
}

Value evaluate_call(Machine& machine, const Expr& expr) {
  const Expr& target = *expr.children[0];
  if (target.kind != ExprKind::attribute) {
    Value callee = evaluate(machine, target);
    if (const Undefined* u = std::get_if<Undefined>(&callee); u && target.kind == ExprKind::name) {
      fail_construct(machine, "unknown function '{}'", printable_name(u->name));
    }
    return call_value(machine, callee, evaluate_arguments(machine, expr));
  }
  Value object = evaluate(machine, *target.children[0]);
  Value callee = attribute(machine, object, target.text);
  if (is<Undefined>(callee)) {
    fail_construct(machine, "unknown method '{}' of {}", printable_name(target.text),
                   type_name(object));
  }
  return call_value(machine, callee, evaluate_arguments(machine, expr));
}

Value evaluate_builtin(Machine& machine, const Expr& expr) {
  if (expr.builtin == nullptr) {
    fail_construct(machine, "unknown {} '{}'", expr.kind == ExprKind::filter ? "filter" : "test",
                   printable_name(expr.text));
  }
  Value self = evaluate(machine, *expr.children[0]);
  return call_builtin(machine, *expr.builtin, self, evaluate_arguments(machine, expr));
}

Value evaluate_comparison(Machine& machine, const Expr& expr) {
  Value left = evaluate(machine, *expr.children[0]);
  for (size_t i = 0; i < expr.operators.size(); ++i) {
    Value right = evaluate(machine, *expr.children[i + 1]);
    if (!compare(machine, expr.operators[i], left, right)) return false;
    left = right;
  }
  return true;
}

Value evaluate_conditional(Machine& machine, const Expr& expr) {
  if (truthy(evaluate(machine, *expr.children[1]))) return evaluate(machine, *expr.children[0]);
  if (expr.children[2] == nullptr) return Undefined{"an if without else"};
  return evaluate(machine, *expr.children[2]);
}

// and, or: the value of the side that decides.
Value evaluate_logical(Machine& machine, const Expr& expr) {
  Value left = evaluate(machine, *expr.children[0]);
  bool decided = truthy(left) == (expr.kind == ExprKind::logical_or);
  return decided ? left : evaluate(machine, *expr.children[1]);
}

Value evaluate_binary(Machine& machine, const Expr& expr) {
  Value left = evaluate(machine, *expr.children[0]);
  return binary(machine, expr.op, left, evaluate(machine, *expr.children[1]));
}

}  // namespace

Value evaluate(Machine& machine, const Expr& expr) {
  Nesting nesting(machine, expr.line);
  auto child = [&](size_t i) { return evaluate(machine, *expr.children[i]); };
  switch (expr.kind) {
    case ExprKind::literal:
      return expr.literal;
    case ExprKind::name:
      return look_up(machine, expr.text);
    case ExprKind::captured:
      return machine.captured;
    case ExprKind::list:
    case ExprKind::tuple:
      return evaluate_elements(machine, expr);
    case ExprKind::dict:
      return evaluate_dict(machine, expr);
    case ExprKind::attribute:
      return attribute(machine, child(0), expr.text);
    case ExprKind::subscript: {
      Value object = child(0);
      return subscript(machine, object, child(1));
    }
    case ExprKind::slice:
      return evaluate_slice(machine, expr);
    case ExprKind::call:
      return evaluate_call(machine, expr);
    case ExprKind::filter:
    case ExprKind::test:
      return evaluate_builtin(machine, expr);
    case ExprKind::logical_not:
      return !truthy(child(0));
    case ExprKind::logical_and:
    case ExprKind::logical_or:
      return evaluate_logical(machine, expr);
    case ExprKind::negative:
      return negate(machine, child(0));
    case ExprKind::positive:
      return plus(machine, child(0));
    case ExprKind::arithmetic:
      return evaluate_binary(machine, expr);
    case ExprKind::comparison:
      return evaluate_comparison(machine, expr);
    case ExprKind::conditional:
      return evaluate_conditional(machine, expr);
  }
  return Undefined{};
}

Value call_value(Machine& machine, const Value& callee, const Arguments& arguments) {
  if (const auto* function = std::get_if<const Builtin*>(&callee)) {
    return call_builtin(machine, **function, None{}, arguments);
  }
  if (const auto* method = std::get_if<const BoundMethod*>(&callee)) {
    return call_builtin(machine, *(*method)->method, (*method)->self, arguments);
  }
  if (const auto* macro = std::get_if<const Macro*>(&callee)) {
    return call_macro(machine, **macro, arguments);
  }
  if (const Undefined* u = std::get_if<Undefined>(&callee)) {
    fail(machine, "'{}' is undefined", printable_name(u->name));
  }
  fail(machine, "{} cannot be called", type_name(callee));
}

}  // namespace tyto::jinja
