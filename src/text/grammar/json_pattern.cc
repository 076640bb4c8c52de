#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/utf8.h"
#include "text/grammar/gbnf.h"
#include "text/grammar/json_schema.h"

namespace tyto {
namespace {

using Ranges = std::vector<CharacterRange>;

constexpr size_t kMaxGroupDepth = 24;  // groups in groups; GBNF allows more

// Characters that JSON writes with an escape, and those that it must.
struct Escaped {
  char32_t character;
  std::string_view spelled;
};
constexpr Escaped kEscaped[] = {{'"', "\\\""}, {'\\', "\\\\"}, {'\n', "\\n"}, {'\r', "\\r"},
                                {'\t', "\\t"}, {'\b', "\\b"},  {'\f', "\\f"}};

const Ranges kDigits = {{'0', '9'}};
const Ranges kWord = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const Ranges kSpace = {{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680},
                       {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                       {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const Ranges kLineEnds = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

bool has(const Ranges& ranges, char32_t character) {
  return std::ranges::any_of(ranges, [&](const CharacterRange& range) {
    return range.first <= character && character <= range.last;
  });
}

// One character of the ranges, as a JSON string spells it.
std::string in_json(Ranges ranges) {
  std::vector<std::string> choices;
  for (const Escaped& each : kEscaped)
    if (has(ranges, each.character)) choices.push_back(gbnf_text(each.spelled));
  Ranges others = complement(std::move(ranges));
  others.insert(others.end(), {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}});
  const Ranges plain = complement(std::move(others));
  if (!plain.empty() || choices.empty()) choices.push_back(gbnf_class(plain));
  if (choices.size() == 1) return choices[0];
  return fmt::format("({})", fmt::join(choices, " | "));
}

// "3", "3," or "3,5", and within what a grammar can repeat.
bool is_repetition(std::string_view counts) {
  const char* end = counts.data() + counts.size();
  uint32_t least = 0, most = kMaxRepetition;
  auto read = std::from_chars(counts.data(), end, least);
  if (read.ec == std::errc() && read.ptr != end && *read.ptr == ',' && read.ptr + 1 != end)
    read = std::from_chars(read.ptr + 1, end, most);
  else if (read.ec == std::errc() && read.ptr != end && *read.ptr == ',')
    ++read.ptr;
  return read.ec == std::errc() && read.ptr == end && least <= most && most <= kMaxRepetition;
}

class PatternParser {
 public:
  PatternParser(const Json& pattern, const std::string& any_character)
      : pattern_(pattern), any_(any_character), source_(pattern.as_string()) {}

  // Without an anchor anything may stand before or behind what matches.
  std::string parse() {
    std::string result;
    do {
      const std::string before = take("^") ? "" : any_ + "* ";
      std::string middle = sequence(0);
      const std::string behind = take("$") ? "" : " " + any_ + "*";
      if (middle.empty()) middle = "\"\"";
      result.append(result.empty() ? "" : " | ").append(before + middle + behind);
    } while (take("|"));
    if (at_ < source_.size()) unsupported();
    return "(" + result + ")";
  }

 private:
  [[noreturn]] void unsupported() const {
    throw Error(
        ErrorCode::unsupported, pattern_.path(),
        fmt::format("the regular expression is not supported from \"{}\" on",
                    source_.substr(std::min(at_, source_.size()), 16)),
        "use literals, classes, groups, alternatives, repetitions, and anchors at the ends");
  }

  bool take(std::string_view text) {
    if (!source_.substr(at_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }
  char peek() const { return at_ < source_.size() ? source_[at_] : '\0'; }

  char32_t take_character() {
    if (at_ == source_.size()) unsupported();
    const Utf8Head head = utf8_head(source_.substr(at_));
    at_ += head.bytes;
    return head.code_point;
  }

  std::string sequence(size_t depth) {
    std::string result;
    while (at_ < source_.size() && peek() != '|' && peek() != ')' && peek() != '$')
      result.append(result.empty() ? "" : " ").append(repeated(atom(depth)));
    return result;
  }

  std::string group(size_t depth) {
    if (depth >= kMaxGroupDepth) unsupported();
    take("?:");
    std::string result;
    do {
      const std::string part = sequence(depth + 1);
      result.append(result.empty() ? "" : " | ").append(part.empty() ? "\"\"" : part);
    } while (take("|"));
    if (!take(")")) unsupported();
    return "(" + result + ")";
  }

  std::string atom(size_t depth) {
    if (take("(")) return group(depth);
    if (take("[")) return in_json(character_class());
    if (take(".")) return in_json(complement(kLineEnds));
    if (peek() == '\\') return in_json(escape());
    if (std::string_view("^$*+?{}]").find(peek()) != std::string_view::npos) unsupported();
    const char32_t character = take_character();
    return in_json({{character, character}});
  }

  // Whether a repetition is greedy makes no difference to what matches.
  std::string repeated(const std::string& item) {
    const size_t begin = at_;
    if (take("{")) {
      at_ = std::min(source_.find('}', at_), source_.size());
      const std::string_view counts = source_.substr(begin + 1, at_ - begin - 1);
      if (!is_repetition(counts) || !take("}")) {
        at_ = begin;
        unsupported();
      }
    } else if (!take("*") && !take("+") && !take("?")) {
      return item;
    }
    const std::string times(source_.substr(begin, at_ - begin));
    take("?");
    if (std::string_view("*+?{").find(peek()) != std::string_view::npos && peek() != '\0')
      unsupported();
    return item + times;
  }

  Ranges character_class() {
    const bool is_negated = take("^");
    Ranges ranges;
    while (!take("]")) {
      const Ranges first = class_member();
      if (peek() != '-' || source_.substr(at_ + 1, 1) == "]") {
        ranges.insert(ranges.end(), first.begin(), first.end());
        continue;
      }
      take("-");
      const Ranges last = class_member();
      const bool is_range = first.size() == 1 && last.size() == 1 &&
                            first[0].first == first[0].last && last[0].first == last[0].last &&
                            first[0].first <= last[0].first;
      if (!is_range) unsupported();
      ranges.push_back({first[0].first, last[0].first});
    }
    return is_negated ? complement(std::move(ranges)) : normalized(std::move(ranges));
  }

  Ranges class_member() {
    if (peek() == '\\') return escape();
    const char32_t character = take_character();
    return {{character, character}};
  }

  char32_t hex(size_t digits) {
    char32_t value = 0;
    for (size_t i = 0; i < digits; ++i) {
      const std::string_view all = "0123456789abcdef";
      const char c = peek();
      const size_t digit = all.find(c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c);
      if (digit == all.npos || c == '\0') unsupported();
      value = value << 4 | static_cast<char32_t>(digit);
      ++at_;
    }
    if (value >= 0xD800 && value < 0xE000) unsupported();  // half of a character
    return value;
  }

  Ranges escape() {
    const size_t begin = at_;
    take("\\");
    const auto one = [](char32_t character) { return Ranges{{character, character}}; };
    const char kind = peek();
    ++at_;
    switch (kind) {
      case 'd':
        return kDigits;
      case 'D':
        return complement(kDigits);
      case 'w':
        return kWord;
      case 'W':
        return complement(kWord);
      case 's':
        return kSpace;
      case 'S':
        return complement(kSpace);
      case 'n':
        return one('\n');
      case 'r':
        return one('\r');
      case 't':
        return one('\t');
      case 'f':
        return one('\f');
      case 'x':
        return one(hex(2));
      case 'u':
        return one(hex(4));
      default:
        break;
    }
    if (kind == '\0' || std::string_view("^$\\.*+?()[]{}|/-\"'#&,:;<=>@_`~!% ").find(kind) ==
                            std::string_view::npos) {
      at_ = begin;
      unsupported();
    }
    return one(static_cast<char32_t>(kind));
  }

  const Json& pattern_;
  const std::string& any_;
  std::string_view source_;
  size_t at_ = 0;
};

}  // namespace

std::string gbnf_from_pattern(const Json& pattern, const std::string& any_character) {
  return PatternParser(pattern, any_character).parse();
}

}  // namespace tyto
