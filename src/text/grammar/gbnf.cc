#include "text/grammar/gbnf.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "base/error.h"
#include "base/utf8.h"

namespace tyto {
namespace {

constexpr size_t kMaxSourceBytes = 512 << 10;
constexpr size_t kMaxRules = 8192;
constexpr size_t kMaxExpressionDepth = 64;  // groups in groups: expressions are walked by recursion

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

bool is_count_digit(char c) {
  return c >= '0' && c <= '9';
}

int hex_value(char c) {
  if (is_count_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

class Parser {
 public:
  explicit Parser(std::string_view source) : source_(source) {
    for (size_t i = 0; i < source.size(); ++i)
      if (source[i] == '\n') line_ends_.push_back(i);
  }

  GrammarText parse() {
    if (source_.size() > kMaxSourceBytes)
      fail_input("grammar", "{} bytes are more than {}", source_.size(), kMaxSourceBytes);
    skip_space();
    while (!at_end()) parse_rule();
    for (size_t i = 0; i < grammar_.rules.size(); ++i)
      if (!is_defined_[i])
        fail_input(fmt::format("grammar: line {}", grammar_.rules[i].line),
                   "there is no rule \"{}\"", grammar_.rules[i].name);
    const auto root = numbers_.find("root");
    if (root == numbers_.end()) fail_input("grammar", "there is no rule \"root\"");
    grammar_.root = root->second;
    return std::move(grammar_);
  }

 private:
  template <typename... Args>
  [[noreturn]] void fail(size_t place, fmt::format_string<Args...> format, Args&&... args) const {
    fail_input(fmt::format("grammar: line {}", line_of(place)), format,
               std::forward<Args>(args)...);
  }

  size_t line_of(size_t place) const {
    return 1 +
           static_cast<size_t>(std::ranges::lower_bound(line_ends_, place) - line_ends_.begin());
  }

  bool at_end() const { return at_ == source_.size(); }
  char peek() const { return at_end() ? '\0' : source_[at_]; }
  bool take(std::string_view text) {
    if (!source_.substr(at_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }

  // White space and comments.
  size_t space_end(size_t place) const {
    while (place < source_.size()) {
      if (source_[place] == '#')
        place = std::min(source_.find('\n', place), source_.size());
      else if (std::string_view(" \t\r\n").find(source_[place]) != std::string_view::npos)
        ++place;
      else
        break;
    }
    return place;
  }
  void skip_space() { at_ = space_end(at_); }

  size_t name_end(size_t place) const {
    while (place < source_.size() && is_name_character(source_[place])) ++place;
    return place;
  }

  // A rule goes on until the next one begins; line ends alone mean nothing.
  bool at_rule() const {
    const size_t end = name_end(at_);
    return end > at_ && source_.substr(space_end(end)).starts_with("::=");
  }

  uint32_t rule_number(std::string_view name) {
    const auto [entry, is_new] =
        numbers_.try_emplace(std::string(name), static_cast<uint32_t>(grammar_.rules.size()));
    if (is_new) {
      if (grammar_.rules.size() == kMaxRules) fail(at_, "there are more than {} rules", kMaxRules);
      grammar_.rules.push_back({std::string(name), line_of(at_)});
      is_defined_.push_back(false);
    }
    return entry->second;
  }

  void parse_rule() {
    const size_t begin = at_;
    if (!at_rule()) fail(at_, "expected a rule (name ::= ...), found {}", here());
    const std::string_view name = source_.substr(at_, name_end(at_) - at_);
    const uint32_t number = rule_number(name);
    if (is_defined_[number]) fail(begin, "the rule \"{}\" is there twice", name);
    is_defined_[number] = true;
    at_ = space_end(name_end(at_)) + 3;
    Expression body = parse_choice(0);
    if (!at_end() && !at_rule()) fail(at_, "expected a rule (name ::= ...), found {}", here());
    grammar_.rules[number].line = line_of(begin);
    grammar_.rules[number].body = std::move(body);
  }

  std::string here() const {
    return at_end() ? "the end" : fmt::format("\"{}\"", source_.substr(at_, 12));
  }

  static Expression joined(Expression::Kind kind, std::vector<Expression> parts) {
    if (parts.size() == 1) return std::move(parts[0]);
    return {.kind = kind, .parts = std::move(parts)};
  }

  Expression parse_choice(size_t depth) {
    if (depth > kMaxExpressionDepth) fail(at_, "groups nest deeper than {}", kMaxExpressionDepth);
    std::vector<Expression> parts;
    do {
      skip_space();
      parts.push_back(parse_sequence(depth));
    } while (take("|"));
    return joined(Expression::Kind::choice, std::move(parts));
  }

  Expression parse_sequence(size_t depth) {
    std::vector<Expression> parts;
    while (!at_end() && peek() != '|' && peek() != ')' && !at_rule()) {
      parts.push_back(parse_repeated(parse_item(depth)));
      skip_space();
    }
    return joined(Expression::Kind::sequence, std::move(parts));
  }

  Expression parse_item(size_t depth) {
    const size_t begin = at_;
    if (take("\"")) return parse_text(begin);
    if (take("[")) return parse_class(begin);
    if (take(".")) return {.kind = Expression::Kind::characters, .ranges = {{0, kLastCharacter}}};
    if (take("(")) {
      Expression group = parse_choice(depth + 1);
      if (!take(")")) fail(begin, "a group is not closed");
      return group;
    }
    if (peek() == '<' || peek() == '!')
      throw Error(ErrorCode::unsupported, fmt::format("grammar: line {}", line_of(at_)),
                  "tokens in a grammar (<name>, !<[id]>) are not supported", "write their text");
    const size_t end = name_end(at_);
    if (end == at_) fail(at_, "expected a text, a class, a group or a rule, found {}", here());
    const uint32_t number = rule_number(source_.substr(at_, end - at_));
    at_ = end;
    return {.kind = Expression::Kind::rule, .rule = number};
  }

  Expression parse_repeated(Expression item) {
    skip_space();
    const size_t begin = at_;
    uint32_t least = 0, most = Expression::kForever;
    if (take("?")) {
      most = 1;
    } else if (take("+")) {
      least = 1;
    } else if (take("{")) {
      least = parse_count();
      most = least;
      if (take(",")) {
        skip_space();
        most = is_count_digit(peek()) ? parse_count() : Expression::kForever;
      }
      if (!take("}")) fail(begin, "expected {{least,most}}, found {}", here());
      if (least > most) fail(begin, "{} to {} times is not a repetition", least, most);
    } else if (!take("*")) {
      return item;
    }
    skip_space();
    if (std::string_view("?+*{").find(peek()) != std::string_view::npos && !at_end())
      fail(at_, "a repetition is repeated; put the first one into a group");
    Expression repeat{.kind = Expression::Kind::repeat, .least = least, .most = most};
    repeat.parts.push_back(std::move(item));
    return repeat;
  }

  uint32_t parse_count() {
    skip_space();
    const size_t begin = at_;
    uint32_t count = 0;
    while (is_count_digit(peek())) {
      count = count * 10 + static_cast<uint32_t>(source_[at_++] - '0');
      if (count > kMaxRepetition) fail(begin, "a repetition is of more than {}", kMaxRepetition);
    }
    if (at_ == begin) fail(begin, "expected a number, found {}", here());
    skip_space();
    return count;
  }

  Expression parse_text(size_t begin) {
    Expression result{.kind = Expression::Kind::text};
    while (!take("\"")) {
      const char32_t character = parse_character(begin);
      if (character >= 0xD800 && character < 0xE000)
        fail(at_, "U+{:04X} is half of a surrogate pair and no character",
             static_cast<uint32_t>(character));
      append_utf8(character, result.text);
    }
    return result;
  }

  Expression parse_class(size_t begin) {
    const bool is_negated = take("^");
    std::vector<CharacterRange> ranges;
    while (!take("]")) {
      const size_t place = at_;
      const char32_t first = parse_character(begin);
      char32_t last = first;
      if (peek() == '-' && source_.substr(at_ + 1, 1) != "]") {
        ++at_;
        last = parse_character(begin);
      }
      if (first > last) fail(place, "a range ends before it begins");
      ranges.push_back({first, last});
    }
    ranges = is_negated ? complement(std::move(ranges)) : normalized(std::move(ranges));
    return {.kind = Expression::Kind::characters, .ranges = std::move(ranges)};
  }

  char32_t parse_character(size_t begin) {
    if (at_end()) fail(begin, "a text or class is not closed");
    if (peek() == '\\') return parse_escape();
    const Utf8Head head = utf8_head(source_.substr(at_));
    if (head.kind != Utf8Head::Kind::valid) fail(at_, "is not UTF-8");
    at_ += head.bytes;
    return head.code_point;
  }

  char32_t parse_escape() {
    const size_t begin = at_;
    const char kind = at_ + 1 < source_.size() ? source_[at_ + 1] : '\0';
    at_ += 2;
    switch (kind) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'x':
        return parse_hex(begin, 2);
      case 'u':
        return parse_hex(begin, 4);
      case 'U':
        return parse_hex(begin, 8);
      default:
        break;
    }
    if (kind == '\0' || std::string_view("\\\"[]-^").find(kind) == std::string_view::npos)
      fail(begin, "unknown escape {}", printable_escape(begin));
    return static_cast<char32_t>(kind);
  }

  std::string printable_escape(size_t begin) const {
    return fmt::format("\"{}\"", source_.substr(begin, 2));
  }

  char32_t parse_hex(size_t begin, int digits) {
    char32_t value = 0;
    for (int i = 0; i < digits; ++i) {
      const int digit = hex_value(peek());
      if (digit < 0) fail(begin, "{} needs {} hexadecimal digits", printable_escape(begin), digits);
      value = value << 4 | static_cast<char32_t>(digit);
      ++at_;
    }
    if (value > kLastCharacter) fail(begin, "{} is past U+10FFFF", printable_escape(begin));
    return value;
  }

  std::string_view source_;
  std::vector<size_t> line_ends_;
  size_t at_ = 0;
  GrammarText grammar_;
  std::vector<bool> is_defined_;  // [rules]
  std::map<std::string, uint32_t> numbers_;
};

}  // namespace

std::vector<CharacterRange> normalized(std::vector<CharacterRange> ranges) {
  std::ranges::sort(ranges, {}, &CharacterRange::first);
  std::vector<CharacterRange> result;
  for (const CharacterRange& range : ranges) {
    if (!result.empty() && range.first <= result.back().last + 1)
      result.back().last = std::max(result.back().last, range.last);
    else
      result.push_back(range);
  }
  return result;
}

std::vector<CharacterRange> complement(std::vector<CharacterRange> ranges) {
  std::vector<CharacterRange> result;
  char32_t next = 0;
  for (const CharacterRange& range : normalized(std::move(ranges))) {
    if (range.first > next) result.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastCharacter) result.push_back({next, kLastCharacter});
  return result;
}

GrammarText parse_gbnf(std::string_view source) {
  return Parser(source).parse();
}

namespace {

bool is_plain(char32_t character) {
  return (character >= '0' && character <= '9') || (character >= 'a' && character <= 'z') ||
         (character >= 'A' && character <= 'Z');
}

std::string in_class(char32_t character) {
  if (is_plain(character)) return std::string(1, static_cast<char>(character));
  return fmt::format("\\U{:08X}", static_cast<uint32_t>(character));
}

}  // namespace

std::string gbnf_text(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      result.append("\\").push_back(c);
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F)
      result += fmt::format("\\x{:02X}", static_cast<unsigned char>(c));
    else
      result.push_back(c);
  }
  return result + "\"";
}

std::string gbnf_class(const std::vector<CharacterRange>& ranges) {
  std::string result = "[";
  for (const CharacterRange& range : ranges) {
    result += in_class(range.first);
    if (range.last > range.first) result += "-" + in_class(range.last);
  }
  return result + "]";
}

}  // namespace tyto
