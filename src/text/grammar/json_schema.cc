#include "text/grammar/json_schema.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/utf8.h"
#include "text/grammar/gbnf.h"

namespace tyto {
namespace {

constexpr uint64_t kMost = 9'999'999'999'999'999;  // 16 digits: what a double holds
const std::string kFraction = "(\".\" [0-9]{1,16})?";
const std::string kNoDigits = "[]";

std::string any_of(const std::vector<std::string>& choices) {
  return choices.empty() ? kNoDigits : fmt::format("({})", fmt::join(choices, " | "));
}

// Numbers of as many digits, from one to the other.
std::string between_digits(const std::string& low, const std::string& high) {
  if (low == high) return "\"" + low + "\"";
  const bool is_all = low == std::string(low.size(), '0') && high == std::string(high.size(), '9');
  if (is_all) return fmt::format("[0-9]{{{}}}", low.size());
  const auto same = static_cast<size_t>(std::ranges::mismatch(low, high).in1 - low.begin());
  const std::string prefix = same == 0 ? "" : "\"" + low.substr(0, same) + "\" ";
  const size_t rest = low.size() - same - 1;
  if (rest == 0) return fmt::format("{}[{}-{}]", prefix, low[same], high[same]);
  std::vector<std::string> choices;
  const auto digit = [&](char first, const std::string& from, const std::string& to) {
    choices.push_back(fmt::format("\"{}\" {}", first, between_digits(from, to)));
  };
  digit(low[same], low.substr(same + 1), std::string(rest, '9'));
  if (low[same] + 1 < high[same])
    choices.push_back(fmt::format("[{}-{}] [0-9]{{{}}}", static_cast<char>(low[same] + 1),
                                  static_cast<char>(high[same] - 1), rest));
  digit(high[same], std::string(rest, '0'), high.substr(same + 1));
  return prefix + any_of(choices);
}

// Numbers of any number of digits, without a sign.
std::string between(uint64_t low, uint64_t high) {
  std::vector<std::string> choices;
  while (low <= high) {
    const std::string digits = std::to_string(low);
    const std::string nines(digits.size(), '9');
    const bool is_last = std::to_string(high).size() == digits.size();
    choices.push_back(between_digits(digits, is_last ? std::to_string(high) : nines));
    if (is_last) break;
    low = std::stoull(nines) + 1;
  }
  return any_of(choices);
}

// A part of the numbers on one side of zero, by what they are without their sign.
struct Magnitudes {
  uint64_t low = 0;
  uint64_t high = kMost;
  bool low_is_open = false;
  bool high_is_open = false;

  bool is_empty() const { return low > high || (low == high && (low_is_open || high_is_open)); }
};

uint64_t magnitude(int64_t value) {
  return value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
}

Magnitudes positive(const NumberBounds& bounds) {
  Magnitudes part;
  if (bounds.least && bounds.least->value >= 0) {
    part.low = magnitude(bounds.least->value);
    part.low_is_open = bounds.least->is_open;
    part.high = std::max(kMost, part.low + 1);
  }
  if (bounds.most && bounds.most->value < 0) return {.low = 1, .high = 0};
  if (bounds.most) {
    part.high = magnitude(bounds.most->value);
    part.high_is_open = bounds.most->is_open;
  }
  return part;
}

Magnitudes negative(const NumberBounds& bounds) {
  NumberBounds mirrored;
  const auto mirror = [](const std::optional<NumberBound>& bound) {
    std::optional<NumberBound> result = bound;
    if (result) result->value = -std::max(result->value, -INT64_MAX);
    return result;
  };
  mirrored.least = mirror(bounds.most);
  mirrored.most = mirror(bounds.least);
  Magnitudes part = positive(mirrored);
  if (part.low == 0) part.low_is_open = true;  // there is no -0
  return part;
}

std::string integers(const Magnitudes& part) {
  return between(part.low + part.low_is_open, part.high - part.high_is_open);
}

std::string numbers(const Magnitudes& part) {
  std::vector<std::string> choices;
  const uint64_t first = part.low + part.low_is_open;
  if (first < part.high) choices.push_back(between(first, part.high - 1) + " " + kFraction);
  if (part.low_is_open) choices.push_back(fmt::format("\"{}.\" [0-9]{{0,15}} [1-9]", part.low));
  if (!part.high_is_open)
    choices.push_back(fmt::format("\"{}\" (\".\" \"0\"{{1,16}})?", part.high));
  return any_of(choices);
}

std::string with_signs(const NumberBounds& bounds, std::string (*write)(const Magnitudes&)) {
  std::vector<std::string> choices;
  if (const Magnitudes part = positive(bounds); !part.is_empty()) choices.push_back(write(part));
  if (const Magnitudes part = negative(bounds); !part.is_empty())
    choices.push_back("\"-\" " + write(part));
  return any_of(choices);
}

}  // namespace

std::string gbnf_integer(const NumberBounds& bounds) {
  return with_signs(bounds, integers);
}

std::string gbnf_number(const NumberBounds& bounds) {
  return with_signs(bounds, numbers);
}

namespace {

constexpr size_t kMaxKeywords = 50'000;  // keywords looked at, in all
constexpr size_t kMaxReferences = 48;    // references to references

// Keywords that would forbid values, and that a grammar of this kind cannot express.
constexpr std::string_view kUnsupported[] = {"not",
                                             "if",
                                             "then",
                                             "else",
                                             "contains",
                                             "minContains",
                                             "maxContains",
                                             "patternProperties",
                                             "propertyNames",
                                             "multipleOf",
                                             "dependencies",
                                             "dependentRequired",
                                             "dependentSchemas",
                                             "unevaluatedProperties",
                                             "unevaluatedItems",
                                             "additionalItems",
                                             "$dynamicRef",
                                             "$recursiveRef"};

constexpr std::string_view kTypes[] = {"object", "array",   "string", "integer",
                                       "number", "boolean", "null"};

// Which type a keyword is about, for schemas that do not say their type.
constexpr std::pair<std::string_view, std::string_view> kTypeOfKeyword[] = {
    {"properties", "object"},
    {"required", "object"},
    {"additionalProperties", "object"},
    {"minProperties", "object"},
    {"maxProperties", "object"},
    {"items", "array"},
    {"prefixItems", "array"},
    {"minItems", "array"},
    {"maxItems", "array"},
    {"pattern", "string"},
    {"minLength", "string"},
    {"maxLength", "string"},
    {"format", "string"},
    {"minimum", "number"},
    {"maximum", "number"},
    {"exclusiveMinimum", "number"},
    {"exclusiveMaximum", "number"}};

std::string unescaped(std::string_view part) {
  std::string result;
  for (size_t i = 0; i < part.size(); ++i) {
    const bool is_escape = part[i] == '~' && i + 1 < part.size();
    result.push_back(!is_escape ? part[i] : part[++i] == '1' ? '/' : '~');
  }
  return result;
}

Json step(const Json& from, const std::string& part, const Json& reference) {
  std::optional<Json> found;
  if (from.is(Json::Type::object))
    found = from.find(part);
  else if (from.is(Json::Type::array))
    from.for_each_element([&](size_t index, const Json& element) {
      if (std::to_string(index) == part) found = element;
    });
  if (!found) reference.fail(fmt::format("there is no \"{}\"", part));
  return *found;
}

std::set<std::string_view> types_in(const Json& type) {
  std::set<std::string_view> types;
  const auto add = [&](const Json& name) {
    if (std::ranges::find(kTypes, name.as_string()) == std::end(kTypes))
      name.fail(fmt::format("there is no type \"{}\"", name.as_string()));
    types.insert(name.as_string());
    if (name.as_string() == "number") types.insert("integer");
  };
  if (type.is(Json::Type::array))
    type.for_each_element([&](size_t, const Json& name) { add(name); });
  else
    add(type);
  return types;
}

}  // namespace

[[noreturn]] void unsupported(const Json& at, const std::string& what) {
  throw Error(ErrorCode::unsupported, at.path(), what);
}

Schemas all_of(const Keywords& keywords, std::string_view name) {
  Schemas found;
  const auto [begin, end] = keywords.equal_range(name);
  for (auto each = begin; each != end; ++each) found.push_back(each->second);
  return found;
}

const Json* only(const Keywords& keywords, std::string_view name) {
  const auto [begin, end] = keywords.equal_range(name);
  if (begin == end) return nullptr;
  if (std::next(begin) != end)
    unsupported(std::next(begin)->second, "is said twice, by schemas that all hold");
  return &begin->second;
}

bool has_type(const Json& value, std::string_view type) {
  switch (value.type()) {
    case Json::Type::object:
      return type == "object";
    case Json::Type::array:
      return type == "array";
    case Json::Type::string:
      return type == "string";
    case Json::Type::integer:
      return type == "integer" || type == "number";
    case Json::Type::number:
      return type == "number" ||
             (type == "integer" && value.as_double() == std::floor(value.as_double()));
    case Json::Type::boolean:
      return type == "boolean";
    case Json::Type::null:
      break;
  }
  return type == "null";
}

Counts counts_of(const Keywords& keywords, std::string_view least, std::string_view most) {
  constexpr uint64_t kHighest = kMaxRepetition;
  Counts counts;
  for (const Json& each : all_of(keywords, least))
    counts.least = std::max(counts.least, each.as_uint(kHighest));
  for (const Json& each : all_of(keywords, most))
    counts.most = std::min(counts.most.value_or(kHighest), each.as_uint(kHighest));
  return counts;
}

void check_supported(const Keywords& keywords) {
  for (const std::string_view key : kUnsupported)
    if (const auto found = keywords.find(key); found != keywords.end())
      unsupported(found->second, "this keyword is not supported");
  for (const Json& unique : all_of(keywords, "uniqueItems"))
    if (unique.as_bool()) unsupported(unique, "this keyword is not supported");
}

bool is_constraint(std::string_view keyword) {
  constexpr std::string_view kOthers[] = {"type",  "enum",  "const",    "anyOf",
                                          "oneOf", "allOf", "nullable", "uniqueItems"};
  return std::ranges::find(kUnsupported, keyword) != std::end(kUnsupported) ||
         std::ranges::find(kOthers, keyword) != std::end(kOthers) ||
         std::ranges::any_of(kTypeOfKeyword,
                             [&](const auto& each) { return each.first == keyword; });
}

const Json* find_typed(const Keywords& keywords) {
  for (const auto& [key, type] : kTypeOfKeyword)
    if (const auto found = keywords.find(key); found != keywords.end()) return &found->second;
  return nullptr;
}

bool is_any_value(const Keywords& keywords) {
  return types_of(keywords).size() == std::size(kTypes) && find_typed(keywords) == nullptr;
}

std::set<std::string_view> types_of(const Keywords& keywords) {
  std::set<std::string_view> types;
  if (!keywords.contains("type"))
    for (const auto& [key, type] : kTypeOfKeyword)
      if (keywords.contains(key)) types.insert(type);
  if (types.empty()) types.insert(std::begin(kTypes), std::end(kTypes));
  for (const Json& type : all_of(keywords, "type"))
    std::erase_if(types, [said = types_in(type)](auto each) { return !said.contains(each); });
  for (const Json& nullable : all_of(keywords, "nullable"))
    if (nullable.as_bool()) types.insert("null");
  return types;
}

NumberBounds bounds_of(std::string_view type, const Keywords& keywords) {
  NumberBounds bounds;
  const auto take = [&](std::string_view key, bool is_least, bool is_open) {
    for (const Json& each : all_of(keywords, key)) {
      const double value = each.as_double();
      if (type == "number" && value != std::floor(value))
        unsupported(each, "bounds of numbers that are not integers are not supported");
      const bool is_far = std::fabs(value) > 9e18;
      if (is_far && (value > 0) == is_least) unsupported(each, "is beyond 64 bits");
      if (is_far) continue;  // all that is written is on this side of it
      NumberBound bound{
          each.is(Json::Type::integer) ? each.as_int() : static_cast<int64_t>(std::floor(value)),
          is_open};
      if (value != std::floor(value)) {
        bound.value += is_least ? 1 : 0;
        bound.is_open = false;
      }
      std::optional<NumberBound>& old = is_least ? bounds.least : bounds.most;
      const bool is_tighter = !old ||
                              (is_least ? bound.value > old->value : bound.value < old->value) ||
                              (bound.value == old->value && is_open);
      if (is_tighter) old = bound;
    }
  };
  take("minimum", true, false);
  take("exclusiveMinimum", true, true);
  take("maximum", false, false);
  take("exclusiveMaximum", false, true);
  return bounds;
}

void SchemaDocument::spend(const Json& at, size_t work) {
  work_ += work;
  if (work_ > kMaxKeywords) at.fail("the schema becomes too large");
}

Json SchemaDocument::resolve(const Json& reference) const {
  std::string_view rest = reference.as_string();
  if (!rest.starts_with('#')) unsupported(reference, "refers to another document");
  rest.remove_prefix(1);
  Json at = top_;
  while (!rest.empty()) {
    if (!rest.starts_with('/')) unsupported(reference, "is not a path from the top (#/$defs/...)");
    rest.remove_prefix(1);
    const size_t end = std::min(rest.find('/'), rest.size());
    at = step(at, unescaped(rest.substr(0, end)), reference);
    rest.remove_prefix(end);
  }
  return at;
}

void SchemaDocument::collect(const Json& schema, Keywords& into, size_t depth) {
  spend(schema, 1);
  if (depth > kMaxReferences) schema.fail("refers to itself without end");
  if (schema.is(Json::Type::boolean)) {
    if (!schema.as_bool()) into.emplace("enum", no_values_);
    return;
  }
  schema.for_each_member([&](std::string_view key, const Json& value) {
    spend(value, 1);
    if (key == "$ref")
      collect(resolve(value), into, depth + 1);
    else if (key == "allOf")
      value.for_each_element([&](size_t, const Json& each) { collect(each, into, depth + 1); });
    else
      into.emplace(key, value);
  });
}

namespace {

constexpr size_t kMaxGrammarBytes = 512 << 10;  // as much as a grammar may have
constexpr size_t kMaxNameBytes = 128;  // names that others are told apart from, byte by byte

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

namespace {

constexpr size_t kMaxSchemaDepth = 48;  // schemas in schemas; the JSON itself has a limit, too
const std::string kEmptyClass = "[]";   // a class without characters

std::string times(uint64_t least, std::optional<uint64_t> most) {
  if (!most) return least == 0 ? "*" : fmt::format("{{{},}}", least);
  return fmt::format("{{{},{}}}", least, *most);
}

class SchemaWriter {
 public:
  SchemaWriter(const Json& document, const std::string& root) : document_(document), rules_(root) {}

  std::string write() {
    rules_.define(rules_.root(), rule_for(Schemas{document_.top()}, ""));
    for (; !pending_.empty(); pending_.pop_front())
      rules_.define(pending_.front().first, rule_for(Schemas{pending_.front().second}, ""));
    return rules_.text();
  }

 private:
  // The name of a rule for values that are of all these schemas.
  std::string rule_for(const Schemas& schemas, std::string_view hint) {
    if (++depth_ > kMaxSchemaDepth) schemas[0].fail("schemas nest too deep");
    std::string name;
    if (const auto target = schemas.size() == 1 ? reference(schemas[0]) : std::nullopt) {
      name = *target;
    } else {
      Keywords keywords;
      for (const Json& schema : schemas) document_.collect(schema, keywords);
      name = rule_for(keywords, schemas[0], hint);
    }
    --depth_;
    return name;
  }

  // The rule of what a schema refers to, if that is all it does. It is written once, later: it may
  // refer to itself.
  std::optional<std::string> reference(const Json& schema) {
    if (!schema.is(Json::Type::object)) return std::nullopt;
    const auto target = schema.find("$ref");
    bool is_alone = true;
    schema.for_each_member([&](std::string_view key, const Json&) {
      is_alone &= key == "$ref" || key == "$defs" || key == "definitions" || !is_constraint(key);
    });
    if (!target || !is_alone) return std::nullopt;
    const std::string pointer(target->as_string());
    const auto known = references_.find(pointer);
    if (known != references_.end()) return known->second;
    const Json found = document_.resolve(*target);
    std::string name = rules_.new_name(pointer.substr(pointer.rfind('/') + 1));
    references_.emplace(pointer, name);
    pending_.emplace_back(name, found);
    return name;
  }

  std::string rule_for(const Keywords& keywords, const Json& at, std::string_view hint) {
    document_.spend(at, keywords.size());
    check_supported(keywords);
    if (keywords.contains("enum") || keywords.contains("const")) return listed(keywords, hint);
    for (const std::string_view key : {"anyOf", "oneOf"})
      if (keywords.contains(key)) return choice(keywords, key, hint);

    if (is_any_value(keywords)) return rules_.plain("value");
    std::vector<std::string> rules;
    const std::set<std::string_view> types = types_of(keywords);
    for (const std::string_view type : types)
      if (type != "integer" || !types.contains("number"))
        rules.push_back(of_type(type, keywords, at, hint));
    if (rules.size() == 1) return rules[0];
    return rules_.add(hint,
                      rules.empty() ? kEmptyClass : fmt::format("{}", fmt::join(rules, " | ")));
  }

  // Values that are written out. Other keywords beside them have nothing to add but the type.
  std::string listed(const Keywords& keywords, std::string_view hint) {
    if (const Json* found = find_typed(keywords))
      unsupported(*found, "is not supported beside enum or const");
    const std::set<std::string_view> types = types_of(keywords);
    std::vector<std::string> order;       // as in the first list
    std::map<std::string, size_t> lists;  // how many have it
    size_t seen = 0;
    const auto look_at = [&](const Schemas& values) {
      for (const Json& value : values) {
        document_.spend(value, 1);
        const bool fits = std::ranges::any_of(
            types, [&](std::string_view type) { return has_type(value, type); });
        const std::string text = json_text(value);
        if (!fits || lists[text] != seen) continue;
        lists[text] = seen + 1;
        if (seen == 0) order.push_back(text);
      }
      ++seen;
    };
    for (const Json& each : all_of(keywords, "const")) look_at({each});
    for (const Json& list : all_of(keywords, "enum")) {
      Schemas values;
      list.for_each_element([&](size_t, const Json& value) { values.push_back(value); });
      look_at(values);
    }
    std::erase_if(order, [&](const std::string& text) { return lists[text] < seen; });
    std::ranges::transform(order, order.begin(), [](const auto& text) { return gbnf_text(text); });
    return rules_.add(hint,
                      order.empty() ? kEmptyClass : fmt::format("{}", fmt::join(order, " | ")));
  }

  // anyOf, and oneOf as if it were anyOf, beside whatever else is said.
  std::string choice(const Keywords& keywords, std::string_view key, std::string_view hint) {
    Keywords others = keywords;
    others.erase(others.find(key));
    const bool is_alone =
        std::ranges::none_of(others, [](const auto& each) { return is_constraint(each.first); });
    std::vector<std::string> rules;
    keywords.find(key)->second.for_each_element([&](size_t, const Json& alternative) {
      if (is_alone) return rules.push_back(rule_for(Schemas{alternative}, hint));
      Keywords merged = others;
      document_.collect(alternative, merged);
      if (++depth_ > kMaxSchemaDepth) alternative.fail("schemas nest too deep");
      rules.push_back(rule_for(merged, alternative, hint));
      --depth_;
    });
    return rules_.add(hint,
                      rules.empty() ? kEmptyClass : fmt::format("{}", fmt::join(rules, " | ")));
  }

  std::string of_type(std::string_view type, const Keywords& keywords, const Json& at,
                      std::string_view hint) {
    if (type == "object") return object(keywords, hint);
    if (type == "array") return array(keywords, hint);
    if (type == "string") return string(keywords, at, hint);
    if (type == "integer" || type == "number") return number(type, keywords, hint);
    return rules_.plain(type);
  }

  std::string string(const Keywords& keywords, const Json& at, std::string_view hint) {
    const Json* pattern = only(keywords, "pattern");
    const Json* format = only(keywords, "format");
    constexpr std::string_view kFormats[] = {"date", "time", "date-time", "uuid"};
    const bool has_format =
        format != nullptr && std::ranges::find(kFormats, format->as_string()) != std::end(kFormats);
    const Counts length = counts_of(keywords, "minLength", "maxLength");
    const bool has_length = length.least > 0 || length.most;
    if ((pattern != nullptr) + has_format + has_length > 1)
      unsupported(at, "pattern, format and length cannot be combined");
    if (pattern != nullptr)
      return rules_.add(hint, fmt::format("\"\\\"\" {} \"\\\"\"",
                                          gbnf_from_pattern(*pattern, rules_.plain("char"))));
    if (has_format) return rules_.plain(format->as_string());
    if (!has_length) return rules_.plain("string");
    if (length.is_empty()) return rules_.add(hint, kEmptyClass);
    return rules_.add(hint, fmt::format("\"\\\"\" {}{} \"\\\"\"", rules_.plain("char"),
                                        times(length.least, length.most)));
  }

  std::string number(std::string_view type, const Keywords& keywords, std::string_view hint) {
    const NumberBounds bounds = bounds_of(type, keywords);
    if (!bounds.least && !bounds.most) return rules_.plain(type);
    return rules_.add(hint, type == "integer" ? gbnf_integer(bounds) : gbnf_number(bounds));
  }

  std::string array(const Keywords& keywords, std::string_view hint) {
    Schemas first, items;
    for (const std::string_view key : {"prefixItems", "items"})
      for (const Json& each : all_of(keywords, key)) {
        if (!each.is(Json::Type::array)) {
          items.push_back(each);
          continue;
        }
        if (!first.empty()) unsupported(each, "is said twice, by schemas that all hold");
        each.for_each_element([&](size_t, const Json& element) { first.push_back(element); });
      }
    Counts counts = counts_of(keywords, "minItems", "maxItems");
    // Items that have a place are all written, and no others unless they are described.
    counts.least = std::max<uint64_t>(counts.least, first.size());
    if (!first.empty() && items.empty())
      counts.most = std::min<uint64_t>(counts.most.value_or(first.size()), first.size());
    if (counts.is_empty()) return rules_.add(hint, kEmptyClass);
    const std::string ws = rules_.plain("ws");
    const std::string comma = fmt::format("{0} \",\" {0} ", ws);
    std::string content;
    for (const Json& each : first)
      content += (content.empty() ? "" : comma) + rule_for(Schemas{each}, hint) + " ";
    const uint64_t done = first.size();
    if (!counts.most || *counts.most > done) {
      const std::string item = items.empty() ? rules_.plain("value") : rule_for(items, hint);
      if (done == 0 && counts.least <= 1 && counts.most == 1)
        content = item + " ";
      else if (done == 0)
        content = fmt::format("{} ({}{}){} ", item, comma, item, rest_times(counts, 1));
      else
        content += fmt::format("({}{}){} ", comma, item, rest_times(counts, done));
    }
    const bool may_be_empty = counts.least == 0;
    if (content.empty()) return rules_.add(hint, fmt::format("\"[\" {} \"]\"", ws));
    return rules_.add(
        hint, fmt::format("\"[\" {0} ({1}{0}){2} \"]\"", ws, content, may_be_empty ? "?" : ""));
  }

  static std::string rest_times(const Counts& counts, uint64_t done) {
    const uint64_t least = counts.least > done ? counts.least - done : 0;
    return times(least, counts.most ? std::optional(*counts.most - done) : std::nullopt);
  }

  struct Member {
    std::string name;
    Schemas schemas = {};
    bool is_required = false;
    std::string rule = {};
  };

  // In the order in which the schemas name them.
  std::vector<Member> members_of(const Keywords& keywords) {
    std::vector<Member> members;
    std::map<std::string, size_t> places;
    const auto member = [&](std::string_view name) -> Member& {
      const auto [place, is_new] = places.try_emplace(std::string(name), members.size());
      if (is_new) members.push_back({std::string(name)});
      return members[place->second];
    };
    for (const Json& properties : all_of(keywords, "properties"))
      properties.for_each_member([&](std::string_view name, const Json& schema) {
        member(name).schemas.push_back(schema);
      });
    for (const Json& required : all_of(keywords, "required"))
      required.for_each_element(
          [&](size_t, const Json& name) { member(name.as_string()).is_required = true; });
    const std::string ws = rules_.plain("ws");
    for (Member& each : members) {
      const std::string value =
          each.schemas.empty() ? rules_.plain("value") : rule_for(each.schemas, each.name);
      each.rule = rules_.add(
          each.name,
          fmt::format("{} {} \":\" {} {}", gbnf_text(json_string(each.name)), ws, ws, value));
    }
    return members;
  }

  // Members that no schema names, if there may be any: the rule for one.
  std::optional<std::string> other_member(const Keywords& keywords,
                                          const std::vector<Member>& members) {
    Schemas schemas;
    bool is_open = !keywords.contains("properties") && !keywords.contains("additionalProperties");
    for (const Json& each : all_of(keywords, "additionalProperties")) {
      if (each.is(Json::Type::boolean) && !each.as_bool()) return std::nullopt;
      is_open = true;
      if (!each.is(Json::Type::boolean)) schemas.push_back(each);
    }
    if (!is_open) return std::nullopt;
    std::vector<std::string> names;
    for (const Member& member : members) names.push_back(member.name);
    const std::string ws = rules_.plain("ws");
    const std::string value = schemas.empty() ? rules_.plain("value") : rule_for(schemas, "other");
    const std::string name = names.empty() ? rules_.plain("string") : rules_.other_string(names);
    return rules_.add("other", fmt::format("{} {} \":\" {} {}", name, ws, ws, value));
  }

  // Members in their order, each with a comma unless it is the first that is there.
  std::string object(const Keywords& keywords, std::string_view hint) {
    const std::vector<Member> members = members_of(keywords);
    const std::optional<std::string> other = other_member(keywords, members);
    const Counts counts = counts_of(keywords, "minProperties", "maxProperties");
    if (!members.empty())
      for (const std::string_view key : {"minProperties", "maxProperties"})
        if (const auto found = keywords.find(key); found != keywords.end())
          unsupported(found->second, "is not supported beside properties");
    if (counts.is_empty()) return rules_.add(hint, kEmptyClass);

    const std::string ws = rules_.plain("ws");
    const std::string comma = fmt::format("{0} \",\" {0} ", ws);
    std::string tail;  // what may follow when something was there, from the last to the first
    std::vector<std::string> beginnings;
    if (other && counts.most != 0) {
      tail = fmt::format("({}{}){}", comma, *other, rest_times(counts, 1));
      beginnings.push_back(*other + " " + tail);
    }
    bool may_be_empty = counts.least == 0;
    for (size_t i = members.size(); i-- > 0;) {
      const Member& member = members[i];
      if (member.is_required) beginnings.clear();
      may_be_empty &= !member.is_required;
      beginnings.push_back(member.rule + " " + tail);
      if (i == 0) break;
      const std::string next =
          member.is_required ? comma + member.rule : fmt::format("({}{})?", comma, member.rule);
      tail = rules_.add(hint, next + " " + tail);
    }
    std::ranges::reverse(beginnings);
    if (beginnings.empty())
      return rules_.add(hint, may_be_empty ? fmt::format("\"{{\" {} \"}}\"", ws) : kEmptyClass);
    return rules_.add(hint, fmt::format("\"{{\" {0} (({1}) {0}){2} \"}}\"", ws,
                                        fmt::join(beginnings, " | "), may_be_empty ? "?" : ""));
  }

  SchemaDocument document_;
  JsonRules rules_;
  std::map<std::string, std::string> references_;     // from pointers to rules
  std::deque<std::pair<std::string, Json>> pending_;  // rules to be written
  size_t depth_ = 0;
};

}  // namespace

std::string gbnf_from_json_schema(const Json& schema, const std::string& rule) {
  return SchemaWriter(schema, rule).write();
}

Grammar grammar_from_json_schema(const Json& schema) {
  return Grammar(gbnf_from_json_schema(schema));
}

std::string gbnf_of_json(JsonKind kind, const std::string& rule) {
  JsonRules rules(rule);
  rules.define(rule, rules.plain(kind == JsonKind::object ? "object" : "value"));
  return rules.text();
}

}  // namespace tyto
