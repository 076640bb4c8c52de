// Tokens to a Program.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_lexer.h"
#include "text/jinja_machine.h"

namespace tyto::jinja {

inline constexpr size_t kMaxSource = size_t{1} << 18;
inline constexpr int kMaxNesting = 200;  // of tags, brackets and what they hold, counted together

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
