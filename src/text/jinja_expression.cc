// The half of the parser that reads expressions. Precedence, loosest first:
//   a if c else b;  or;  and;  not;  comparisons, in;  + -;  ~;  * / // %;  **;  unary + -;
//   then what follows a value directly: .name  [index]  (call)  |filter  is test
#include <charconv>
#include <cmath>

#include "base/printable.h"
#include "text/jinja_builtins.h"
#include "text/jinja_parser.h"

namespace tyto::jinja {
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
  switch (peek(parser).kind) {
    case TokenKind::name:
      return parse_name(parser);
    case TokenKind::string:
      return parse_string(parser);
    case TokenKind::integer:
    case TokenKind::real:
      return parse_number(parser);
    default:
      break;
  }
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

}  // namespace tyto::jinja
