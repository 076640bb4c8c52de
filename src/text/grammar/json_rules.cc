#include "text/grammar/json_rules.h"

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"
#include "text/grammar/gbnf_text.h"

namespace tyto {
namespace {

constexpr size_t kMaxGrammarBytes = 512 << 10;  // as much as a grammar may have
constexpr size_t kMaxNameBytes = 128;  // of names that others are told apart from, byte by byte

struct PlainRule {
  std::string_view name;
  std::string_view expression;  // @name is another of these
};

// Between two parts of a value there is nothing, a space, or a line end and some indentation: a
// model that is in doubt cannot write blanks for ever. Numbers end for the same reason, and have no
// exponents that a double could not hold. Escapes are such that the string is one of characters.
constexpr PlainRule kPlainRules[] = {
    {"ws", R"( | " " | "\n" [ \t]{0,20} )"},
    {"hex", R"([0-9a-fA-F])"},
    {"unit",
     R"([0-9a-cA-CefEF] @hex{3} | [dD] ([0-7] @hex{2} | [89abAB] @hex{2} "\\u" [dD] [c-fC-F] @hex{2}))"},
    {"char", R"([^"\\\x00-\x1F] | "\\" (["\\/bfnrt] | "u" @unit))"},
    {"string", R"("\"" @char* "\"")"},
    {"integer", R"("-"? ("0" | [1-9] [0-9]{0,15}))"},
    {"number", R"("-"? ("0" | [1-9] [0-9]{0,15}) ("." [0-9]{1,16})? ([eE] [-+]? [0-9]{1,2})?)"},
    {"boolean", R"("true" | "false")"},
    {"null", R"("null")"},
    {"array", R"("[" @ws (@value (@ws "," @ws @value)* @ws)? "]")"},
    {"member", R"(@string @ws ":" @ws @value)"},
    {"object", R"("{" @ws (@member (@ws "," @ws @member)* @ws)? "}")"},
    {"value", R"(@object | @array | @string | @number | @boolean | @null)"},
    {"day", R"([0-9]{4} "-" ("0" [1-9] | "1" [0-2]) "-" ("0" [1-9] | [12] [0-9] | "3" [01]))"},
    {"clock", R"(([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9])"},
    {"moment", R"(@clock ":" [0-5] [0-9] ("." [0-9]{1,9})? ("Z" | [-+] @clock))"},
    {"date", R"("\"" @day "\"")"},
    {"time", R"("\"" @moment "\"")"},
    {"date-time", R"("\"" @day "T" @moment "\"")"},
    {"uuid", R"("\"" @hex{8} "-" @hex{4} "-" @hex{4} "-" @hex{4} "-" @hex{12} "\"")"},
};

const PlainRule* find_plain(std::string_view name) {
  const auto found = std::ranges::find(kPlainRules, name, &PlainRule::name);
  return found == std::end(kPlainRules) ? nullptr : found;
}

std::u32string characters_of(std::string_view text) {
  std::u32string result;
  while (!text.empty()) {
    const Utf8Head head = utf8_head(text);
    result.push_back(head.code_point);
    text.remove_prefix(head.bytes);
  }
  return result;
}

}  // namespace

std::string JsonRules::new_name(std::string_view hint) {
  std::string name = root_ + "-";
  for (const char c : hint.substr(0, 24)) {
    const bool is_plain_letter =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    name.push_back(is_plain_letter ? c : '-');
  }
  return fmt::format("{}-{}", name, ++names_);
}

void JsonRules::define(const std::string& name, const std::string& expression) {
  bytes_ += name.size() + expression.size() + 6;
  if (bytes_ > kMaxGrammarBytes)
    fail_input("JSON schema", "its grammar is more than {} bytes", kMaxGrammarBytes);
  rules_.emplace_back(name, expression);
}

std::string JsonRules::add(std::string_view hint, const std::string& expression) {
  std::string name = new_name(hint);
  define(name, expression);
  return name;
}

// Its name ends without a number, which no other's does.
std::string JsonRules::plain(std::string_view which) {
  const PlainRule* rule = find_plain(which);
  TYTO_ASSERT(rule != nullptr);
  std::string name = fmt::format("{}-{}", root_, rule->name);
  if (std::ranges::count(plain_, rule->name) > 0) return name;
  plain_.push_back(rule->name);
  std::string expression;
  std::string_view rest = rule->expression;
  for (size_t at = rest.find('@'); at != rest.npos; at = rest.find('@')) {
    expression += rest.substr(0, at);
    rest.remove_prefix(at + 1);
    const size_t end = std::min(rest.find_first_not_of("abcdefghijklmnopqrstuvwxyz-"), rest.size());
    expression += plain(rest.substr(0, end));
    rest.remove_prefix(end);
  }
  define(name, expression + std::string(rest));
  return name;
}

std::string JsonRules::other_string(const std::vector<std::string>& names) {
  std::vector<std::u32string> spelled;
  for (const std::string& name : names) {
    const bool is_plain = json_string(name).size() == name.size() + 2;  // else it has escapes
    if (is_plain && name.size() <= kMaxNameBytes) spelled.push_back(characters_of(name));
  }
  std::ranges::sort(spelled);
  spelled.erase(std::unique(spelled.begin(), spelled.end()), spelled.end());
  return add("other", "\"\\\"\" " + other_tail(spelled, 0));
}

// The rest of a string that has begun like these, and is none of them. As long as it might still be
// one it has no escapes, which could spell the same letters.
std::string JsonRules::other_tail(const std::vector<std::u32string>& names, size_t depth) {
  std::vector<std::string> choices;
  std::vector<CharacterRange> others = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
  bool is_name = false;
  for (size_t first = 0, end = 0; first < names.size(); first = end) {
    end = first + 1;
    if (names[first].size() == depth) {
      is_name = true;
      continue;
    }
    const char32_t letter = names[first][depth];
    while (end < names.size() && names[end][depth] == letter) ++end;
    others.push_back({letter, letter});
    choices.push_back(gbnf_class({{letter, letter}}) + " " +
                      other_tail({names.begin() + static_cast<std::ptrdiff_t>(first),
                                  names.begin() + static_cast<std::ptrdiff_t>(end)},
                                 depth + 1));
  }
  choices.push_back(fmt::format("{} {}* \"\\\"\"", gbnf_class(complement(others)), plain("char")));
  if (!is_name) choices.emplace_back("\"\\\"\"");
  return add("other", fmt::format("{}", fmt::join(choices, " | ")));
}

std::string JsonRules::text() const {
  std::string first, others;
  for (const auto& [name, expression] : rules_)
    (name == root_ ? first : others) += fmt::format("{} ::= {}\n", name, expression);
  return first + others;
}

std::string json_string(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      result.append("\\").push_back(c);
    else if (c == '\n')
      result += "\\n";
    else if (c == '\t')
      result += "\\t";
    else if (c == '\r')
      result += "\\r";
    else if (static_cast<unsigned char>(c) < 0x20)
      result += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    else
      result.push_back(c);
  }
  return result + "\"";
}

std::string json_text(const Json& value) {
  std::vector<std::string> parts;
  switch (value.type()) {
    case Json::Type::object:
      value.for_each_member([&](std::string_view key, const Json& member) {
        parts.push_back(json_string(key) + ":" + json_text(member));
      });
      return fmt::format("{{{}}}", fmt::join(parts, ","));
    case Json::Type::array:
      value.for_each_element(
          [&](size_t, const Json& element) { parts.push_back(json_text(element)); });
      return fmt::format("[{}]", fmt::join(parts, ","));
    case Json::Type::string:
      return json_string(value.as_string());
    case Json::Type::integer:
      return std::to_string(value.as_int());
    case Json::Type::number:
      return fmt::format("{}", value.as_double());
    case Json::Type::boolean:
      return value.as_bool() ? "true" : "false";
    case Json::Type::null:
      break;
  }
  return "null";
}

}  // namespace tyto
