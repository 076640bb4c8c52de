#include "text/jinja/parser.h"

#include <algorithm>
#include <initializer_list>

#include "base/error.h"
#include "base/utf8.h"
#include "text/jinja/builtins.h"
#include "text/jinja/value.h"

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

namespace {

constexpr size_t kNotFound = std::string_view::npos;

struct Lexer {
  std::string_view source;
  const std::string& name;
  std::deque<std::string>& strings;
  std::vector<Token> tokens;
  size_t at = 0;
  int line = 1;
  bool line_start = true;  // what was consumed last ended a line
};

template <typename... Args>
[[noreturn]] void fail(const Lexer& lexer, fmt::format_string<Args...> format, Args&&... args) {
  fail_input(fmt::format("chat template {}: line {}", lexer.name, lexer.line), format,
             std::forward<Args>(args)...);
}

void advance(Lexer& lexer, size_t to) {
  auto begin = lexer.source.begin();
  lexer.line += static_cast<int>(std::count(begin + static_cast<ptrdiff_t>(lexer.at),
                                            begin + static_cast<ptrdiff_t>(to), '\n'));
  if (to > lexer.at) lexer.line_start = lexer.source[to - 1] == '\n';
  lexer.at = to;
}

void emit(Lexer& lexer, TokenKind kind, std::string_view text) {
  lexer.tokens.push_back({kind, lexer.line, text});
}

bool starts_with(const Lexer& lexer, size_t at, std::string_view what) {
  return lexer.source.substr(std::min(at, lexer.source.size())).starts_with(what);
}

size_t skip_space(const Lexer& lexer, size_t at) {
  std::string_view rest = lexer.source.substr(at);
  return at + rest.size() - strip_space(rest, Side::left).size();
}

// Emits the text before a tag at `open`, stripped as the tag's sign and kind ask for.
void emit_text(Lexer& lexer, size_t open, bool is_print) {
  std::string_view text = lexer.source.substr(lexer.at, open - lexer.at);
  char sign = open + 2 < lexer.source.size() ? lexer.source[open + 2] : ' ';
  if (sign == '-') {
    text = strip_space(text, Side::right);
  } else if (sign != '+' && !is_print) {
    size_t line_begin = text.rfind('\n') + 1;  // kNotFound + 1 is 0
    bool whole_line = line_begin > 0 || lexer.line_start;
    if (whole_line && strip_space(text.substr(line_begin), Side::left).empty()) {
      text = text.substr(0, line_begin);
    }
  }
  if (!text.empty()) emit(lexer, TokenKind::text, text);
  advance(lexer, open);
}

// Past the end of a tag whose closing mark of two characters stands at `close`: a '-' before it
// swallows all white space, and where `trim` is set, one line end goes unless a '+' keeps it.
size_t after_tag(const Lexer& lexer, size_t close, char sign, bool trim) {
  size_t next = close + 2;
  if (sign == '-') return skip_space(lexer, next);
  if (trim && sign != '+' && starts_with(lexer, next, "\n")) ++next;
  return next;
}

char sign_before(const Lexer& lexer, size_t begin, size_t close) {
  char c = close > begin ? lexer.source[close - 1] : ' ';
  return c == '-' || c == '+' ? c : ' ';
}

void skip_comment(Lexer& lexer, size_t begin) {
  size_t close = lexer.source.find("#}", begin);
  if (close == kNotFound) fail(lexer, "a comment has no end");
  advance(lexer, after_tag(lexer, close, sign_before(lexer, begin, close), true));
}

// Matches "{%", an optional sign, `word` and the closing mark at `open`.
struct BareTag {
  bool found = false;
  size_t close = 0;
  char sign = ' ';
};

BareTag match_bare_tag(const Lexer& lexer, size_t open, std::string_view word) {
  size_t at = open + 2;
  if (starts_with(lexer, at, "-") || starts_with(lexer, at, "+")) ++at;
  if (at > lexer.source.size()) return {};
  at = skip_space(lexer, at);
  if (!starts_with(lexer, at, word)) return {};
  at = skip_space(lexer, at + word.size());
  char sign = ' ';
  if (starts_with(lexer, at, "-") || starts_with(lexer, at, "+")) sign = lexer.source[at++];
  return {starts_with(lexer, at, "%}"), at, sign};
}

void read_raw(Lexer& lexer, const BareTag& begin) {
  advance(lexer, after_tag(lexer, begin.close, begin.sign, false));
  for (size_t open = lexer.at;; open += 2) {
    open = lexer.source.find("{%", open);
    if (open == kNotFound) fail(lexer, "a raw block has no end");
    BareTag end = match_bare_tag(lexer, open, "endraw");
    if (!end.found) continue;
    emit_text(lexer, open, false);
    advance(lexer, after_tag(lexer, end.close, end.sign, true));
    return;
  }
}

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 99;
}

// Reads up to `most` digits of `base` after body[at]; false when fewer than `least` are there.
bool read_code(std::string_view body, size_t& at, int base, size_t least, size_t most,
               char32_t& code) {
  code = 0;
  size_t count = 0;
  while (count < most && at + 1 < body.size() && digit_value(body[at + 1]) < base) {
    code = code * static_cast<char32_t>(base) + static_cast<char32_t>(digit_value(body[++at]));
    ++count;
  }
  return count >= least;
}

// Python's escapes, which Jinja's string literals have. body[at] is the letter after a backslash.
void append_escape(Lexer& lexer, std::string& out, std::string_view body, size_t& at) {
  static constexpr std::string_view kLetters = "ntr\\'\"abfv\n";
  static constexpr std::string_view kMeanings = "\n\t\r\\'\"\a\b\f\v";
  struct Coded {
    char letter;
    size_t digits;
  };
  char letter = body[at];
  if (size_t known = kLetters.find(letter); known != kNotFound) {
    if (letter != '\n') out += kMeanings[known];
    return;
  }
  char32_t code = 0;
  if (letter >= '0' && letter <= '7') {
    --at;
    read_code(body, at, 8, 1, 3, code);
    append_utf8(code, out);
    return;
  }
  for (Coded coded : {Coded{'x', 2}, Coded{'u', 4}, Coded{'U', 8}}) {
    if (letter != coded.letter) continue;
    bool complete = read_code(body, at, 16, coded.digits, coded.digits, code);
    if (!complete || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
      fail(lexer, "a string has a bad \\{} escape", letter);
    }
    append_utf8(code, out);
    return;
  }
  if (letter == 'N') {
    fail_unsupported(fmt::format("chat template {}: line {}", lexer.name, lexer.line),
                     "the escape \\N in a string");
  }
  out += '\\';
  out += letter;
}

void read_string(Lexer& lexer) {
  char quote = lexer.source[lexer.at];
  size_t end = lexer.at + 1;
  bool escaped = false;
  for (; end < lexer.source.size() && lexer.source[end] != quote; ++end) {
    if (lexer.source[end] == '\\') {
      escaped = true;
      ++end;
    }
  }
  if (end >= lexer.source.size()) fail(lexer, "a string has no end");
  std::string_view body = lexer.source.substr(lexer.at + 1, end - lexer.at - 1);
  if (escaped) {
    std::string& text = lexer.strings.emplace_back();
    for (size_t i = 0; i < body.size(); ++i) {
      if (body[i] == '\\') {
        append_escape(lexer, text, body, ++i);
      } else {
        text += body[i];
      }
    }
    body = text;
  }
  emit(lexer, TokenKind::string, body);
  advance(lexer, end + 1);
}

bool is_decimal(const Lexer& lexer, size_t at) {
  return at < lexer.source.size() && lexer.source[at] >= '0' && lexer.source[at] <= '9';
}

// Digits with single underscores between them.
size_t skip_digits(const Lexer& lexer, size_t at, int base = 10) {
  std::string_view source = lexer.source;
  while (at < source.size()) {
    bool joined = source[at] == '_' && at + 1 < source.size() && digit_value(source[at + 1]) < base;
    if (digit_value(source[at]) >= base && !joined) break;
    ++at;
  }
  return at;
}

void read_number(Lexer& lexer) {
  size_t begin = lexer.at;
  std::string_view source = lexer.source;
  TokenKind kind = TokenKind::integer;
  size_t end = begin;
  int base = 10;
  if (source[begin] == '0' && begin + 2 < source.size()) {
    char letter = static_cast<char>(source[begin + 1] | 0x20);
    int wanted = letter == 'x' ? 16 : (letter == 'o' ? 8 : (letter == 'b' ? 2 : 10));
    if (wanted != 10 && digit_value(source[begin + 2]) < wanted) base = wanted;
  }
  if (base != 10) {
    end = skip_digits(lexer, begin + 2, base);
  } else {
    end = skip_digits(lexer, begin);
    bool after_dot = begin > 0 && source[begin - 1] == '.';  // an index, as in pairs.0.1
    if (!after_dot && starts_with(lexer, end, ".") && is_decimal(lexer, end + 1)) {
      kind = TokenKind::real;
      end = skip_digits(lexer, end + 1);
    }
    if (!after_dot && (starts_with(lexer, end, "e") || starts_with(lexer, end, "E"))) {
      size_t digits = end + 1;
      if (starts_with(lexer, digits, "+") || starts_with(lexer, digits, "-")) ++digits;
      if (is_decimal(lexer, digits)) {
        kind = TokenKind::real;
        end = skip_digits(lexer, digits);
      }
    }
  }
  emit(lexer, kind, source.substr(begin, end - begin));
  advance(lexer, end);
}

bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

void read_name(Lexer& lexer) {
  size_t end = lexer.at;
  while (end < lexer.source.size() &&
         (is_name_start(lexer.source[end]) || is_decimal(lexer, end))) {
    ++end;
  }
  emit(lexer, TokenKind::name, lexer.source.substr(lexer.at, end - lexer.at));
  advance(lexer, end);
}

void read_symbol(Lexer& lexer, std::string& open_brackets) {
  static constexpr std::string_view kLexemes[] = {"**", "//", "==", "!=", "<=", ">=", "+", "-", "/",
                                                  "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                  "<",  ">",  "=",  ".",  ":",  "|",  ",", ";"};
  for (std::string_view symbol : kLexemes) {
    if (!starts_with(lexer, lexer.at, symbol)) continue;
    char c = symbol[0];
    if (c == '(') open_brackets += ')';
    if (c == '[') open_brackets += ']';
    if (c == '{') open_brackets += '}';
    if (c == ')' || c == ']' || c == '}') {
      if (open_brackets.empty()) fail(lexer, "unexpected '{}'", c);
      if (open_brackets.back() != c) {
        fail(lexer, "unexpected '{}' where '{}' should be", c, open_brackets.back());
      }
      open_brackets.pop_back();
    }
    emit(lexer, TokenKind::symbol, lexer.source.substr(lexer.at, symbol.size()));
    advance(lexer, lexer.at + symbol.size());
    return;
  }
  fail(lexer, "unexpected character '{}'",
       printable_name(lexer.source.substr(lexer.at, code_point_at(lexer.source, lexer.at).size)));
}

// The inside of {{ }} or {% %}, to the closing mark, which counts only outside of brackets.
void read_tag(Lexer& lexer, bool is_print) {
  std::string_view mark = is_print ? "}}" : "%}";
  std::string open_brackets;
  emit(lexer, is_print ? TokenKind::print_begin : TokenKind::tag_begin, "");
  advance(lexer, lexer.at + 2);
  if (starts_with(lexer, lexer.at, "-") || starts_with(lexer, lexer.at, "+")) {
    advance(lexer, lexer.at + 1);
  }
  for (;;) {
    advance(lexer, skip_space(lexer, lexer.at));
    if (lexer.at == lexer.source.size()) fail(lexer, "the template ends inside of a tag");
    if (open_brackets.empty()) {
      char sign = lexer.source[lexer.at];
      bool signed_end =
          (sign == '-' || (sign == '+' && !is_print)) && starts_with(lexer, lexer.at + 1, mark);
      if (signed_end || starts_with(lexer, lexer.at, mark)) {
        emit(lexer, is_print ? TokenKind::print_end : TokenKind::tag_end, mark);
        size_t close = lexer.at + (signed_end ? 1 : 0);
        advance(lexer, after_tag(lexer, close, signed_end ? sign : ' ', !is_print));
        return;
      }
    }
    char c = lexer.source[lexer.at];
    if (c == '\'' || c == '"') {
      read_string(lexer);
    } else if (is_decimal(lexer, lexer.at)) {
      read_number(lexer);
    } else if (is_name_start(c)) {
      read_name(lexer);
    } else {
      read_symbol(lexer, open_brackets);
    }
  }
}

size_t find_tag(std::string_view source, size_t at) {
  for (; (at = source.find('{', at)) != kNotFound; ++at) {
    if (at + 1 < source.size() && std::string_view("{%#").find(source[at + 1]) != kNotFound)
      return at;
  }
  return kNotFound;
}

}  // namespace

std::string normalize_source(std::string_view source) {
  std::string result;
  result.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      result += source[i];
      continue;
    }
    result += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (result.ends_with('\n')) result.pop_back();
  return result;
}

std::vector<Token> tokenize(std::string_view source, const std::string& name,
                            std::deque<std::string>& strings) {
  Lexer lexer{.source = source, .name = name, .strings = strings, .tokens = {}};
  for (size_t open; (open = find_tag(source, lexer.at)) != kNotFound;) {
    char kind = source[open + 1];
    emit_text(lexer, open, kind == '{');
    if (kind == '#') {
      bool has_sign = starts_with(lexer, open + 2, "-") || starts_with(lexer, open + 2, "+");
      skip_comment(lexer, open + (has_sign ? 3 : 2));
    } else if (BareTag raw = match_bare_tag(lexer, open, "raw");
               kind == '%' && raw.found && raw.sign != '+') {
      read_raw(lexer, raw);
    } else {
      read_tag(lexer, kind == '{');
    }
  }
  if (lexer.at < source.size()) emit(lexer, TokenKind::text, source.substr(lexer.at));
  advance(lexer, source.size());
  emit(lexer, TokenKind::end, "");
  return std::move(lexer.tokens);
}

}  // namespace tyto::jinja
