#include "text/jinja/parser.h"

#include <initializer_list>

#include "base/utf8.h"

namespace tyto::jinja {
namespace {

using TagNames = std::initializer_list<std::string_view>;

Block parse_block(Parser& parser, std::string_view opened, TagNames ends);

void end_tag(Parser& parser) {
  if (peek(parser).kind != TokenKind::tag_end) {
    fail(parser, "unexpected {} in a tag", describe(peek(parser)));
  }
  ++parser.at;
}

void skip_tag(Parser& parser, std::string_view name) {
  ++parser.at;  // {%
  if (!skip_name(parser, name)) fail(parser, "tag '{}' is missing", name);
  end_tag(parser);
}

Target parse_target(Parser& parser) {
  Target target{.name = expect_name(parser), .attribute = ""};
  if (skip(parser, ".")) target.attribute = expect_name(parser);
  return target;
}

// "a" or "a, b" or "(a, b)"; sets `unpack` when one value goes to several.
void parse_targets(Parser& parser, Stmt& stmt) {
  bool bracket = skip(parser, "(");
  stmt.targets.push_back(parse_target(parser));
  while (skip(parser, ",")) {
    stmt.unpack = true;
    if (peek(parser).kind != TokenKind::name || next_is_name(parser, "in")) break;
    stmt.targets.push_back(parse_target(parser));
  }
  if (bracket) expect(parser, ")");
}

// The tag's name is already read in each of these.

void parse_if(Parser& parser, Stmt& stmt) {
  stmt.kind = StmtKind::branch;
  size_t unknown_before = parser.unknown.size();
  for (bool more = true; more;) {
    Branch& branch = stmt.branches.emplace_back();
    branch.condition = parse_tuple(parser, false);
    end_tag(parser);
    branch.body = parse_block(parser, "if", {"elif", "else", "endif"});
    ++parser.at;  // {%
    more = skip_name(parser, "elif");
  }
  if (skip_name(parser, "else")) {
    end_tag(parser);
    stmt.branches.emplace_back().body = parse_block(parser, "if", {"endif"});
    ++parser.at;
  }
  ++parser.at;  // endif
  end_tag(parser);
  parser.unknown.resize(unknown_before);
}

void parse_for(Parser& parser, Stmt& stmt) {
  stmt.kind = StmtKind::loop;
  parse_targets(parser, stmt);
  for (const Target& target : stmt.targets) {
    if (!target.attribute.empty()) fail_construct(parser, "a loop over an attribute");
  }
  if (!skip_name(parser, "in")) fail(parser, "'in' is missing in a for tag");
  stmt.value = parse_tuple(parser, false);
  if (skip_name(parser, "if")) stmt.condition = parse_expression(parser);
  if (next_is_name(parser, "recursive")) fail_construct(parser, "a recursive loop");
  end_tag(parser);
  ++parser.loops;
  stmt.body = parse_block(parser, "for", {"else", "endfor"});
  --parser.loops;
  ++parser.at;
  if (skip_name(parser, "else")) {
    end_tag(parser);
    stmt.otherwise = parse_block(parser, "for", {"endfor"});
    ++parser.at;
  }
  ++parser.at;  // endfor
  end_tag(parser);
}

// A body that is rendered on its own: loops around it cannot be left from within.
Block parse_captured(Parser& parser, std::string_view opened, std::string_view end) {
  int outer_loops = parser.loops;
  parser.loops = 0;
  Block body = parse_block(parser, opened, {end});
  parser.loops = outer_loops;
  skip_tag(parser, end);
  return body;
}

void parse_set(Parser& parser, Stmt& stmt) {
  stmt.kind = StmtKind::assign;
  parse_targets(parser, stmt);
  if (skip(parser, "=")) {
    stmt.value = parse_tuple(parser);
    end_tag(parser);
    return;
  }
  stmt.kind = StmtKind::assign_block;
  if (stmt.unpack) fail(parser, "a set block has one target");
  if (skip(parser, "|")) stmt.value = parse_block_filters(parser);
  end_tag(parser);
  stmt.body = parse_captured(parser, "set", "endset");
}

void parse_macro(Parser& parser, Stmt& stmt) {
  stmt.kind = StmtKind::macro;
  stmt.text = expect_name(parser);
  expect(parser, "(");
  while (!next_is(parser, ")")) {
    std::string_view name = expect_name(parser);
    const Expr* fallback = nullptr;
    if (skip(parser, "=")) {
      fallback = parse_expression(parser);
    } else if (!stmt.parameters.empty() && stmt.parameters.back().second != nullptr) {
      fail(parser, "a parameter without default follows one with");
    }
    stmt.parameters.emplace_back(name, fallback);
    if (!skip(parser, ",")) break;
  }
  expect(parser, ")");
  end_tag(parser);
  ++parser.macros;
  stmt.body = parse_captured(parser, "macro", "endmacro");
  --parser.macros;
}

void parse_filter_tag(Parser& parser, Stmt& stmt) {
  stmt.kind = StmtKind::filter;
  stmt.value = parse_block_filters(parser);
  end_tag(parser);
  stmt.body = parse_captured(parser, "filter", "endfilter");
}

void parse_with(Parser& parser, Stmt& stmt) {
  stmt.kind = StmtKind::with;
  while (peek(parser).kind != TokenKind::tag_end) {
    std::string_view name = expect_name(parser);
    expect(parser, "=");
    stmt.parameters.emplace_back(name, parse_expression(parser));
    if (!skip(parser, ",")) break;
  }
  end_tag(parser);
  stmt.body = parse_block(parser, "with", {"endwith"});
  skip_tag(parser, "endwith");
}

// transformers' mark around what the assistant said; the text itself is not changed.
void parse_generation(Parser& parser, Stmt& stmt) {
  stmt.kind = StmtKind::with;
  end_tag(parser);
  stmt.body = parse_captured(parser, "generation", "endgeneration");
}

void parse_loop_control(Parser& parser, Stmt& stmt, StmtKind kind) {
  stmt.kind = kind;
  if (parser.loops == 0) fail(parser, "break or continue outside of a loop");
  end_tag(parser);
}

void parse_break(Parser& parser, Stmt& stmt) {
  parse_loop_control(parser, stmt, StmtKind::break_loop);
}

void parse_continue(Parser& parser, Stmt& stmt) {
  parse_loop_control(parser, stmt, StmtKind::continue_loop);
}

struct Tag {
  std::string_view name;
  void (*parse)(Parser& parser, Stmt& stmt);
};

constexpr Tag kTags[] = {
    {"if", parse_if},       {"for", parse_for},           {"set", parse_set},
    {"macro", parse_macro}, {"filter", parse_filter_tag}, {"with", parse_with},
    {"break", parse_break}, {"continue", parse_continue}, {"generation", parse_generation},
};

constexpr std::string_view kMisplaced[] = {"elif",          "else",     "endif",     "endfor",
                                           "endset",        "endmacro", "endfilter", "endwith",
                                           "endgeneration", "endraw"};

void parse_tag(Parser& parser, Stmt& stmt) {
  std::string_view name = peek(parser).text;
  if (peek(parser).kind != TokenKind::name) fail(parser, "a tag has no name");
  for (const Tag& tag : kTags) {
    if (tag.name != name) continue;
    ++parser.at;
    tag.parse(parser, stmt);
    return;
  }
  for (std::string_view each : kMisplaced) {
    if (each == name) fail(parser, "unexpected tag '{}'", name);
  }
  fail_construct(parser, "unknown tag '{}'", printable_name(name));
}

void parse_print(Parser& parser, Stmt& stmt) {
  stmt.kind = StmtKind::print;
  stmt.value = parse_tuple(parser);
  if (peek(parser).kind != TokenKind::print_end) {
    fail(parser, "unexpected {} in an expression", describe(peek(parser)));
  }
  ++parser.at;
}

bool at_tag(const Parser& parser, TagNames names) {
  const Token& name = parser.tokens[parser.at + 1];  // a tag is never the last token
  for (std::string_view each : names) {
    if (name.kind == TokenKind::name && name.text == each) return true;
  }
  return false;
}

// Statements up to one of the tags in `ends`, which is left to the caller; to the end of the
// template when there are none.
Block parse_block(Parser& parser, std::string_view opened, TagNames ends) {
  Inside inside(parser);
  Block block;
  for (;;) {
    const Token& token = peek(parser);
    if (token.kind == TokenKind::end) {
      if (ends.size() == 0) return block;
      fail(parser, "the template ends inside of '{}'", opened);
    }
    if (token.kind == TokenKind::tag_begin && at_tag(parser, ends)) return block;
    Stmt& stmt = block.emplace_back();
    stmt.line = token.line;
    ++parser.at;
    if (token.kind == TokenKind::text) {
      stmt.text = token.text;
    } else if (token.kind == TokenKind::print_begin) {
      parse_print(parser, stmt);
    } else {
      parse_tag(parser, stmt);
    }
  }
}

}  // namespace

bool next_is(const Parser& parser, std::string_view symbol) {
  return peek(parser).kind == TokenKind::symbol && peek(parser).text == symbol;
}

bool next_is_name(const Parser& parser, std::string_view name) {
  return peek(parser).kind == TokenKind::name && peek(parser).text == name;
}

bool skip(Parser& parser, std::string_view symbol) {
  if (!next_is(parser, symbol)) return false;
  ++parser.at;
  return true;
}

bool skip_name(Parser& parser, std::string_view name) {
  if (!next_is_name(parser, name)) return false;
  ++parser.at;
  return true;
}

void expect(Parser& parser, std::string_view symbol) {
  if (!skip(parser, symbol)) {
    fail(parser, "'{}' is missing before {}", symbol, describe(peek(parser)));
  }
}

std::string_view expect_name(Parser& parser) {
  if (peek(parser).kind != TokenKind::name) {
    fail(parser, "a name is missing before {}", describe(peek(parser)));
  }
  return parser.tokens[parser.at++].text;
}

std::string describe(const Token& token) {
  if (token.kind == TokenKind::end) return "the end of the template";
  if (token.kind == TokenKind::string) return "a string";
  if (token.kind == TokenKind::text) return "text";
  return fmt::format("'{}'", printable_line(token.text, 40));
}

std::string where(const Parser& parser, int line) {
  return fmt::format("chat template {}: line {}", parser.program.name, line);
}

Inside::Inside(Parser& parser) : parser_(parser) {
  if (parser.nesting >= kMaxNesting) fail(parser, "nested too deeply");
  ++parser.nesting;
}

std::unique_ptr<const Program> parse(std::string_view source, const std::string& name) {
  if (source.size() > kMaxSource) {
    fail_input(fmt::format("chat template {}", name), "{} bytes are more than the limit of {}",
               source.size(), kMaxSource);
  }
  auto program = std::make_unique<Program>();
  program->name = name;
  program->source = normalize_source(source);
  Parser parser{.program = *program,
                .tokens = tokenize(program->source, name, program->strings),
                .unknown = {}};
  program->body = parse_block(parser, "", {});
  if (!parser.unknown.empty()) {
    const UnknownName& first = parser.unknown.front();
    fail_unsupported(where(parser, first.line), "unknown {} '{}'", first.kind,
                     printable_name(first.name));
  }
  return program;
}

}  // namespace tyto::jinja
