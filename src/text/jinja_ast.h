// A parsed template. Expressions live in the Program's deque and point to each other: a chain of
// ten thousand additions is as deep as it is long, and must not be freed by recursion.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja_operators.h"
#include "text/jinja_value.h"

namespace tyto::jinja {

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
  const Builtin* builtin = nullptr;  // of a filter or test; null: unknown, an error when reached
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
  std::vector<std::pair<std::string_view, const Expr*>> parameters;  // of a macro; of a with
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

}  // namespace tyto::jinja
