#include "text/grammar/json_keywords.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "text/grammar/gbnf.h"

namespace tyto {
namespace {

constexpr size_t kMaxKeywords = 50'000;  // keywords looked at, in all
constexpr size_t kMaxReferences = 48;    // of references to references

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
        unsupported(each, "bounds of numbers that are no integers are not supported");
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
    if (!rest.starts_with('/')) unsupported(reference, "is no path from the top (#/$defs/...)");
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

}  // namespace tyto
