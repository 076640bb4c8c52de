#include "text/jinja/evaluator.h"

#include <charconv>
#include <cmath>

#include "base/utf8.h"
#include "text/jinja/builtins.h"
#include "text/jinja/parser.h"
#include "text/jinja/value.h"

namespace tyto::jinja {

// The half of the parser that reads expressions. Precedence, loosest first:
//   a if c else b;  or;  and;  not;  comparisons, in;  + -;  ~;  * / // %;  **;  unary + -;
//   then what follows a value directly: .name  [index]  (call)  |filter  is test

namespace {

struct BinaryOperator {
  std::string_view symbol;
  Operator op;
  int level;
};

constexpr BinaryOperator kArithmetic[] = {
    {"+", Operator::add, 0},      {"-", Operator::subtract, 0}, {"~", Operator::concatenate, 1},
    {"*", Operator::multiply, 2}, {"/", Operator::divide, 2},   {"//", Operator::floor_divide, 2},
    {"%", Operator::modulo, 2},   {"**", Operator::power, 3},
};
constexpr int kLevels = 4;

constexpr std::pair<std::string_view, Operator> kComparisons[] = {
    {"==", Operator::equal},      {"!=", Operator::not_equal}, {"<", Operator::less},
    {"<=", Operator::less_equal}, {">", Operator::greater},    {">=", Operator::greater_equal},
};

Expr& make(Parser& parser, ExprKind kind, std::vector<const Expr*> children = {}) {
  Expr& expr = parser.program.expressions.emplace_back();
  expr.kind = kind;
  expr.line = peek(parser).line;
  expr.children = std::move(children);
  return expr;
}

const Expr* make_literal(Parser& parser, const Value& value) {
  Expr& expr = make(parser, ExprKind::literal);
  expr.literal = value;
  return &expr;
}

const Expr* parse_number(Parser& parser) {
  const Token& token = peek(parser);
  std::string digits = without_underscores(token.text);
  const char* begin = digits.data();
  const char* end = begin + digits.size();
  Value value;
  if (token.kind == TokenKind::integer) {
    int base = 10;
    if (digits.size() > 2 && digits[0] == '0') {
      char letter = static_cast<char>(digits[1] | 0x20);
      base = letter == 'x' ? 16 : (letter == 'o' ? 8 : (letter == 'b' ? 2 : 10));
      if (base != 10) begin += 2;
    }
    int64_t number = 0;
    if (std::from_chars(begin, end, number, base).ec != std::errc()) {
      fail(parser, "the number {} is too large", printable_line(token.text, 40));
    }
    value = number;
  } else {
    double number = 0;
    if (std::from_chars(begin, end, number).ec != std::errc()) {
      fail(parser, "the number {} is out of range", printable_line(token.text, 40));
    }
    value = number;
  }
  const Expr* expr = make_literal(parser, value);
  ++parser.at;
  return expr;
}

const Expr* parse_string(Parser& parser) {
  const Token& first = peek(parser);
  std::string_view text = first.text;
  const Expr* expr = make_literal(parser, text);
  ++parser.at;
  if (peek(parser).kind == TokenKind::string) {  // neighbours are one string
    std::string& joined = parser.program.strings.emplace_back(text);
    for (; peek(parser).kind == TokenKind::string; ++parser.at) joined += peek(parser).text;
    expr = make_literal(parser, std::string_view(joined));
  }
  return expr;
}

const Expr* parse_name(Parser& parser) {
  static const std::pair<std::string_view, Value> kConstants[] = {
      {"true", true},   {"True", true},   {"false", false},
      {"False", false}, {"none", None{}}, {"None", None{}}};
  std::string_view name = peek(parser).text;
  for (const auto& [constant, value] : kConstants) {
    if (name != constant) continue;
    const Expr* expr = make_literal(parser, value);
    ++parser.at;
    return expr;
  }
  if (parser.macros > 0 && (name == "varargs" || name == "kwargs" || name == "caller")) {
    fail_construct(parser, "'{}' in a macro", name);
  }
  Expr& expr = make(parser, ExprKind::name);
  expr.text = name;
  ++parser.at;
  return &expr;
}

const Expr* parse_parenthesis(Parser& parser) {
  expect(parser, "(");
  if (skip(parser, ")")) return &make(parser, ExprKind::tuple);
  const Expr* expr = parse_tuple(parser);
  expect(parser, ")");
  return expr;
}

const Expr* parse_list(Parser& parser) {
  Expr& list = make(parser, ExprKind::list);
  expect(parser, "[");
  while (!next_is(parser, "]")) {
    list.children.push_back(parse_expression(parser));
    if (!skip(parser, ",")) break;
  }
  expect(parser, "]");
  return &list;
}

const Expr* parse_dict(Parser& parser) {
  Expr& dict = make(parser, ExprKind::dict);
  expect(parser, "{");
  while (!next_is(parser, "}")) {
    dict.children.push_back(parse_expression(parser));
    expect(parser, ":");
    dict.children.push_back(parse_expression(parser));
    if (!skip(parser, ",")) break;
  }
  expect(parser, "}");
  return &dict;
}

const Expr* parse_primary(Parser& parser) {
  const TokenKind kind = peek(parser).kind;
  if (kind == TokenKind::name) return parse_name(parser);
  if (kind == TokenKind::string) return parse_string(parser);
  if (kind == TokenKind::integer || kind == TokenKind::real) return parse_number(parser);
  if (next_is(parser, "(")) return parse_parenthesis(parser);
  if (next_is(parser, "[")) return parse_list(parser);
  if (next_is(parser, "{")) return parse_dict(parser);
  fail(parser, "an expression is missing before {}", describe(peek(parser)));
}

void parse_arguments(Parser& parser, Expr& call) {
  Inside inside(parser);
  expect(parser, "(");
  while (!next_is(parser, ")")) {
    if (next_is(parser, "*") || next_is(parser, "**")) {
      fail_construct(parser, "argument unpacking with '{}'", peek(parser).text);
    }
    const Token& after = parser.tokens[std::min(parser.at + 1, parser.tokens.size() - 1)];
    bool named = peek(parser).kind == TokenKind::name && after.kind == TokenKind::symbol &&
                 after.text == "=";
    if (named) {
      std::string_view name = expect_name(parser);
      expect(parser, "=");
      call.keywords.emplace_back(name, parse_expression(parser));
    } else {
      if (!call.keywords.empty()) fail(parser, "a positional argument follows a named one");
      call.children.push_back(parse_expression(parser));
    }
    if (!skip(parser, ",")) break;
  }
  expect(parser, ")");
}

const Expr* parse_attribute(Parser& parser, const Expr* object) {
  expect(parser, ".");
  if (peek(parser).kind == TokenKind::integer) {
    Expr& expr = make(parser, ExprKind::subscript, {object});
    expr.children.push_back(parse_number(parser));
    return &expr;
  }
  Expr& expr = make(parser, ExprKind::attribute, {object});
  expr.text = expect_name(parser);
  return &expr;
}

const Expr* parse_subscript(Parser& parser, const Expr* object) {
  Inside inside(parser);
  Expr& expr = make(parser, ExprKind::subscript, {object});
  expect(parser, "[");
  std::vector<const Expr*> parts;
  bool colon = false;
  for (int part = 0; part < 3; ++part) {
    bool absent = next_is(parser, ":") || next_is(parser, "]");
    parts.push_back(absent ? nullptr : parse_expression(parser));
    if (next_is(parser, ",")) fail_construct(parser, "a subscript of several values");
    if (!skip(parser, ":")) break;
    colon = true;
  }
  if (!colon && parts[0] == nullptr) fail(parser, "an empty subscript");
  expect(parser, "]");
  if (colon) {
    expr.kind = ExprKind::slice;
    parts.resize(3, nullptr);
  }
  expr.children.insert(expr.children.end(), parts.begin(), parts.end());
  return &expr;
}

const Expr* parse_call(Parser& parser, const Expr* callee) {
  Expr& expr = make(parser, ExprKind::call, {callee});
  parse_arguments(parser, expr);
  return &expr;
}

const Expr* parse_filter(Parser& parser, const Expr* value) {
  Expr& expr = make(parser, ExprKind::filter, {value});
  int line = peek(parser).line;
  expr.text = expect_name(parser);
  expr.builtin = find_filter(expr.text);
  if (expr.builtin == nullptr) parser.unknown.push_back({line, "filter", expr.text});
  if (next_is(parser, "(")) parse_arguments(parser, expr);
  return &expr;
}

const Expr* parse_postfix(Parser& parser, const Expr* expr) {
  for (;;) {
    if (next_is(parser, ".")) {
      expr = parse_attribute(parser, expr);
    } else if (next_is(parser, "[")) {
      expr = parse_subscript(parser, expr);
    } else if (next_is(parser, "(")) {
      expr = parse_call(parser, expr);
    } else {
      return expr;
    }
  }
}

// A test may take one argument without brackets: "is divisibleby 3".
bool starts_bare_argument(const Parser& parser) {
  const Token& token = peek(parser);
  if (token.kind == TokenKind::name) {
    for (std::string_view word : {"else", "or", "and", "if", "not", "in", "recursive"}) {
      if (token.text == word) return false;
    }
    return true;
  }
  return token.kind == TokenKind::string || token.kind == TokenKind::integer ||
         token.kind == TokenKind::real || next_is(parser, "[") || next_is(parser, "{");
}

const Expr* parse_test(Parser& parser, const Expr* value) {
  bool negated = skip_name(parser, "not");
  Expr& expr = make(parser, ExprKind::test, {value});
  int line = peek(parser).line;
  expr.text = expect_name(parser);
  expr.builtin = find_test(expr.text);
  if (expr.builtin == nullptr) parser.unknown.push_back({line, "test", expr.text});
  if (next_is_name(parser, "is")) fail(parser, "tests with 'is' cannot be chained");
  if (next_is(parser, "(")) {
    parse_arguments(parser, expr);
  } else if (starts_bare_argument(parser)) {
    Inside inside(parser);
    expr.children.push_back(parse_postfix(parser, parse_primary(parser)));
  }
  return negated ? &make(parser, ExprKind::logical_not, {&expr}) : &expr;
}

const Expr* parse_unary(Parser& parser, bool with_filters) {
  Inside inside(parser);
  const Expr* expr = nullptr;
  bool minus = next_is(parser, "-");
  if (minus || next_is(parser, "+")) {
    Expr& sign = make(parser, minus ? ExprKind::negative : ExprKind::positive);
    ++parser.at;
    sign.children.push_back(parse_unary(parser, false));
    expr = &sign;
  } else {
    expr = parse_primary(parser);
  }
  expr = parse_postfix(parser, expr);
  while (with_filters) {
    if (skip(parser, "|")) {
      expr = parse_filter(parser, expr);
    } else if (skip_name(parser, "is")) {
      expr = parse_test(parser, expr);
    } else if (next_is(parser, "(")) {
      expr = parse_call(parser, expr);
    } else {
      break;
    }
  }
  return expr;
}

const BinaryOperator* find_arithmetic(const Parser& parser, int level) {
  for (const BinaryOperator& each : kArithmetic) {
    if (each.level == level && next_is(parser, each.symbol)) return &each;
  }
  return nullptr;
}

const Expr* parse_arithmetic(Parser& parser, int level) {
  if (level == kLevels) return parse_unary(parser, true);
  const Expr* left = parse_arithmetic(parser, level + 1);
  while (const BinaryOperator* found = find_arithmetic(parser, level)) {
    Expr& expr = make(parser, ExprKind::arithmetic, {left});
    expr.op = found->op;
    ++parser.at;
    expr.children.push_back(parse_arithmetic(parser, level + 1));
    left = &expr;
  }
  return left;
}

bool skip_comparison(Parser& parser, Operator& op) {
  for (const auto& [symbol, each] : kComparisons) {
    if (skip(parser, symbol)) {
      op = each;
      return true;
    }
  }
  if (skip_name(parser, "in")) {
    op = Operator::in;
    return true;
  }
  const Token& after = parser.tokens[std::min(parser.at + 1, parser.tokens.size() - 1)];
  if (next_is_name(parser, "not") && after.kind == TokenKind::name && after.text == "in") {
    parser.at += 2;
    op = Operator::not_in;
    return true;
  }
  return false;
}

const Expr* parse_comparison(Parser& parser) {
  const Expr* left = parse_arithmetic(parser, 0);
  Operator op = Operator::equal;
  int line = peek(parser).line;
  if (!skip_comparison(parser, op)) return left;
  Expr& expr = make(parser, ExprKind::comparison, {left});
  expr.line = line;
  do {
    expr.operators.push_back(op);
    expr.children.push_back(parse_arithmetic(parser, 0));
  } while (skip_comparison(parser, op));
  return &expr;
}

const Expr* parse_not(Parser& parser) {
  if (!next_is_name(parser, "not")) return parse_comparison(parser);
  Inside inside(parser);
  Expr& expr = make(parser, ExprKind::logical_not);
  ++parser.at;
  expr.children.push_back(parse_not(parser));
  return &expr;
}

const Expr* parse_and(Parser& parser) {
  const Expr* left = parse_not(parser);
  while (skip_name(parser, "and")) {
    Expr& expr = make(parser, ExprKind::logical_and, {left});
    expr.children.push_back(parse_not(parser));
    left = &expr;
  }
  return left;
}

const Expr* parse_or(Parser& parser) {
  const Expr* left = parse_and(parser);
  while (skip_name(parser, "or")) {
    Expr& expr = make(parser, ExprKind::logical_or, {left});
    expr.children.push_back(parse_and(parser));
    left = &expr;
  }
  return left;
}

}  // namespace

const Expr* parse_expression(Parser& parser) {
  Inside inside(parser);
  size_t unknown_before = parser.unknown.size();
  const Expr* expr = parse_or(parser);
  while (skip_name(parser, "if")) {
    Expr& choice = make(parser, ExprKind::conditional, {expr});
    choice.children.push_back(parse_or(parser));
    choice.children.push_back(skip_name(parser, "else") ? parse_expression(parser) : nullptr);
    parser.unknown.resize(unknown_before);
    expr = &choice;
  }
  return expr;
}

const Expr* parse_tuple(Parser& parser, bool conditional) {
  Inside inside(parser);
  const Expr* first = conditional ? parse_expression(parser) : parse_or(parser);
  if (!next_is(parser, ",")) return first;
  Expr& tuple = make(parser, ExprKind::tuple, {first});
  while (skip(parser, ",")) {
    TokenKind kind = peek(parser).kind;
    bool ended = kind == TokenKind::print_end || kind == TokenKind::tag_end ||
                 next_is(parser, ")") || next_is(parser, "=") || next_is_name(parser, "in");
    if (ended) break;
    tuple.children.push_back(conditional ? parse_expression(parser) : parse_or(parser));
  }
  return &tuple;
}

const Expr* parse_block_filters(Parser& parser) {
  const Expr* expr = &make(parser, ExprKind::captured);
  do {
    expr = parse_filter(parser, expr);
  } while (skip(parser, "|"));
  return expr;
}

// The half of the evaluator that runs statements.

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
