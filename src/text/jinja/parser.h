#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace tyto::jinja {

// Template source to tokens, with Jinja's white space rules already applied.

enum class TokenKind : uint8_t {
  text,         // outside of tags
  print_begin,  // {{
  print_end,
  tag_begin,  // {%
  tag_end,
  name,
  string,  // text has the escapes resolved
  integer,
  real,
  symbol,
  end,
};

struct Token {
  TokenKind kind = TokenKind::end;
  int line = 1;
  std::string_view text;
};

// Line ends become \n, and one at the very end is dropped, as Jinja does before anything else.
std::string normalize_source(std::string_view source);

// The settings are transformers': trim_blocks and lstrip_blocks. `name` is for errors; resolved
// string literals are stored in `strings`. The last token is `end`.
std::vector<Token> tokenize(std::string_view source, const std::string& name,
                            std::deque<std::string>& strings);

// A parsed template. Expressions live in the Program's deque and point to each other: a chain of
// ten thousand additions is as deep as it is long, and must not be freed by recursion.

enum class ExprKind : uint8_t {
  literal,      // literal
  name,         // text
  captured,     // the text a {% filter %} or {% set %} block hands to its filters
  list,         // children
  tuple,        // children
  dict,         // children: key, value, key, value, ...
  attribute,    // children[0] . text
  subscript,    // children[0] [ children[1] ]
  slice,        // children[0] [ children[1..3] ], null where left out
  call,         // children[0] ( children[1..], keywords )
  filter,       // children[0] | text ( children[1..], keywords )
  test,         // children[0] is text ( children[1..], keywords )
  logical_not,  // children[0]
  logical_and,  // children[0], children[1]
  logical_or,
  negative,
  positive,
  arithmetic,   // children[0] op children[1]
  comparison,   // children[0] operators[0] children[1] operators[1] children[2] ...
  conditional,  // children: value, condition, other or null
};

struct Expr {
  ExprKind kind = ExprKind::literal;
  int line = 1;
  Operator op = Operator::add;
  std::string_view text;
  Value literal;
  const Builtin* builtin = nullptr;  // a filter's or test's; null: unknown, an error when reached
  std::vector<const Expr*> children;
  std::vector<std::pair<std::string_view, const Expr*>> keywords;
  std::vector<Operator> operators;
};

using Block = std::vector<Stmt>;

enum class StmtKind : uint8_t {
  text,          // text
  print,         // value
  branch,        // branches
  loop,          // targets, value, condition (or null), body, otherwise
  assign,        // targets, value
  assign_block,  // targets[0], body, value: filters over the captured text
  macro,         // text, parameters, body
  filter,        // body, value: filters over the captured text
  with,          // assignments, body; also {% generation %}, with no assignments
  break_loop,
  continue_loop,
};

struct Target {
  std::string_view name;
  std::string_view attribute;  // not empty: name is a namespace
};

struct Branch {
  const Expr* condition = nullptr;  // null: else
  Block body;
};

struct Stmt {
  StmtKind kind = StmtKind::text;
  int line = 1;
  std::string_view text;
  const Expr* value = nullptr;
  const Expr* condition = nullptr;
  bool unpack = false;  // several targets share one value
  std::vector<Target> targets;
  std::vector<std::pair<std::string_view, const Expr*>> parameters;  // for `macro` and `with`
  std::vector<Branch> branches;
  Block body;
  Block otherwise;
};

struct Program {
  std::string name;
  std::string source;               // line ends normalised; texts are views into it
  std::deque<std::string> strings;  // literals with their escapes resolved
  std::deque<Expr> expressions;
  Block body;
};

// Tokens to a Program.

inline constexpr size_t kMaxSource = size_t{1} << 18;
inline constexpr int kMaxNesting = 200;  // tags, brackets and what they hold, counted together

// Values made while rendering hold views into the Program: it has to outlive them.
std::unique_ptr<const Program> parse(std::string_view source, const std::string& name);

// The rest is what the two halves of the parser, statements and expressions, tell each other.

struct UnknownName {
  int line = 1;
  std::string_view kind;  // "filter" or "test"
  std::string_view name;
};

struct Parser {
  Program& program;
  std::vector<Token> tokens;
  size_t at = 0;
  int nesting = 0;
  int loops = 0;   // around the current statement, within its macro
  int macros = 0;  // around the current statement
  // An unknown filter or test is an error of the whole template, as in Jinja, unless a condition
  // guards it; then only who gets there fails.
  std::vector<UnknownName> unknown;
};

inline const Token& peek(const Parser& parser) {
  return parser.tokens[parser.at];
}
bool next_is(const Parser& parser, std::string_view symbol);
bool next_is_name(const Parser& parser, std::string_view name);
bool skip(Parser& parser, std::string_view symbol);
bool skip_name(Parser& parser, std::string_view name);
void expect(Parser& parser, std::string_view symbol);
std::string_view expect_name(Parser& parser);
std::string describe(const Token& token);

std::string where(const Parser& parser, int line);

template <typename... Args>
[[noreturn]] void fail(const Parser& parser, fmt::format_string<Args...> format, Args&&... args) {
  fail_input(where(parser, peek(parser).line), format, std::forward<Args>(args)...);
}

template <typename... Args>
[[noreturn]] void fail_construct(const Parser& parser, fmt::format_string<Args...> format,
                                 Args&&... args) {
  fail_unsupported(where(parser, peek(parser).line), format, std::forward<Args>(args)...);
}

// Held while a bracket or a tag is open.
class Inside {
 public:
  explicit Inside(Parser& parser);
  ~Inside() { --parser_.nesting; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  Parser& parser_;
};

const Expr* parse_expression(Parser& parser);
// "a, b" makes a tuple. Without `conditional`, a following `if` is left to the caller.
const Expr* parse_tuple(Parser& parser, bool conditional = true);
// The filters of a block, over the text it captured: "trim | upper".
const Expr* parse_block_filters(Parser& parser);

}  // namespace tyto::jinja
