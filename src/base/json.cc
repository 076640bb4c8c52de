#include "base/json.h"

#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json_fault.h"

namespace tyto {

using simdjson::dom::element;
using simdjson::dom::element_type;

// Deeper than any model file nests, shallow enough that no recursion over it can hurt.
constexpr size_t kMaxDepth = 64;

struct JsonDocument {
  std::string name;
  simdjson::dom::parser parser;
};

namespace {

template <typename Opaque>
element unwrap(const Opaque& opaque) {
  static_assert(sizeof(Opaque) == sizeof(element));
  static_assert(std::is_trivially_copyable_v<element>);
  element value;
  std::memcpy(static_cast<void*>(&value), &opaque, sizeof value);
  return value;
}

template <typename Opaque>
Opaque wrap(const element& value) {
  Opaque opaque;
  std::memcpy(&opaque, static_cast<const void*>(&value), sizeof opaque);
  return opaque;
}

const char* type_name(element_type type) {
  switch (type) {
    case element_type::OBJECT:
      return "an object";
    case element_type::ARRAY:
      return "an array";
    case element_type::STRING:
      return "a string";
    case element_type::BOOL:
      return "a boolean";
    case element_type::NULL_VALUE:
      return "null";
    default:
      return "a number";
  }
}

// simdjson refuses integers beyond 64 bits, and with them the whole text; Python writes them (10^30
// is the usual "no limit" in a tokenizer_config.json). With an exponent they are doubles.
std::string widen_long_integers(std::string_view text) {
  constexpr size_t kSafeDigits = 18;
  std::string result;
  size_t i = 0;
  while (i < text.size()) {
    const size_t start = i;
    if (text[i] == '"') {
      for (++i; i < text.size() && text[i] != '"'; ++i)
        if (text[i] == '\\') ++i;
      i = std::min(text.size(), i + 1);
      result += text.substr(start, i - start);
    } else if (text[i] == '-' || (text[i] >= '0' && text[i] <= '9')) {
      i = std::min(text.size(), text.find_first_not_of("0123456789+-.eE", i));
      const std::string_view number = text.substr(start, i - start);
      result += number;
      if (number.size() > kSafeDigits && number.find_first_of(".eE") == number.npos) result += "e0";
    } else {
      result += text[i++];
    }
  }
  return result;
}

// One object or array around a place in the text.
struct Level {
  bool is_array = false;
  std::string_view key = {};
  size_t index = 0;
};

std::string path_text(const std::vector<Level>& levels) {
  std::string path;
  for (const Level& level : levels) {
    if (level.is_array)
      path += fmt::format("[{}]", level.index);
    else
      path.append(path.empty() ? "" : ".").append(level.key);
  }
  return path;
}

// Throws at the first number that is none in JSON, if that is what made a text invalid: NaN and
// Infinity, which Python writes, and what no double can hold. The parser does not say where it is.
void refuse_non_numbers(std::string_view text, const std::string& name) {
  constexpr std::string_view kWord =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-.";
  std::vector<Level> levels;
  std::string_view last_string;
  for (size_t i = 0, end = 0; i < text.size() && levels.size() <= kMaxDepth; i = end) {
    const char c = text[i];
    end = i + 1;
    if (c == '"') {
      while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
      last_string = text.substr(i + 1, end - i - 1);
      ++end;
    } else if (c == '{' || c == '[') {
      levels.push_back({.is_array = c == '['});
    } else if ((c == '}' || c == ']') && !levels.empty()) {
      levels.pop_back();
    } else if (c == ':' && !levels.empty()) {
      levels.back().key = last_string;
    } else if (c == ',' && !levels.empty()) {
      ++levels.back().index;
    } else if (kWord.find(c) != kWord.npos) {
      end = std::min(text.size(), text.find_first_not_of(kWord, i));
      const std::string word(text.substr(i, end - i));
      char* after = nullptr;
      const double value = std::strtod(word.c_str(), &after);
      if (*after != '\0' || std::isfinite(value)) continue;
      const std::string path = path_text(levels);
      fail_input(path.empty() ? name : name + ": " + path, "not valid JSON: {} is not a number",
                 word);
    }
  }
}

}  // namespace

Json Json::parse(std::string_view text, const std::string& name) {
  if (text.empty()) fail_input(name, "not valid JSON: there is no text");
  auto document = std::make_shared<JsonDocument>();
  document->name = name;
  if (document->parser.allocate(text.size(), kMaxDepth) != simdjson::SUCCESS)
    fail_input(name, "JSON of {} bytes is too large", text.size());
  element root;
  auto error = document->parser.parse(text.data(), text.size(), true).get(root);
  if (error == simdjson::NUMBER_ERROR) {
    const std::string widened = widen_long_integers(text);
    if (document->parser.allocate(widened.size(), kMaxDepth) != simdjson::SUCCESS)
      fail_input(name, "JSON of {} bytes is too large", text.size());
    error = document->parser.parse(widened.data(), widened.size(), true).get(root);
  }
  if (error == simdjson::DEPTH_ERROR) fail_input(name, "JSON nests deeper than {}", kMaxDepth);
  if (error) {
    refuse_non_numbers(text, name);
    const std::string fault = json_fault(text);
    fail_input(name, "not valid JSON: {}",
               fault.empty() ? "a number or a text in quotes is not one" : fault);
  }
  return Json(std::move(document), wrap<Element>(root), Step{});
}

Json Json::parse_file(const std::string& path, uint64_t limit_bytes) {
  return parse(read_text_file(path, limit_bytes), path);
}

Json::Type Json::type() const {
  switch (unwrap(element_).type()) {
    case element_type::OBJECT:
      return Type::object;
    case element_type::ARRAY:
      return Type::array;
    case element_type::STRING:
      return Type::string;
    case element_type::BOOL:
      return Type::boolean;
    case element_type::NULL_VALUE:
      return Type::null;
    case element_type::DOUBLE:
      return Type::number;
    default:
      return Type::integer;
  }
}

std::string Json::path() const {
  std::vector<const Step*> steps;
  for (const Step* step = &step_; step != nullptr; step = step->up.get()) steps.push_back(step);
  std::string path = document_->name;
  steps.pop_back();  // the root has neither key nor index
  for (size_t depth = steps.size(); depth-- > 0;) {
    const Step& step = *steps[depth];
    const bool is_index = step.key.data() == nullptr;
    path += depth + 1 == steps.size() ? ": " : is_index ? "" : ".";
    path += is_index ? fmt::format("[{}]", step.index) : std::string(step.key);
  }
  return path;
}

std::string Json::text() const {
  return simdjson::minify(unwrap(element_));
}

void Json::fail(const std::string& what) const {
  throw Error(ErrorCode::input, path(), what);
}

void Json::fail_type(std::string_view wanted) const {
  fail(fmt::format("expected {}, found {}", wanted, type_name(unwrap(element_).type())));
}

Json Json::at(std::string_view key) const {
  if (!is(Type::object)) fail_type("an object");
  std::optional<Json> found = member(key);
  if (!found) fail(fmt::format("field \"{}\" is missing", key));
  return *std::move(found);
}

std::optional<Json> Json::member(std::string_view key) const {
  simdjson::dom::object object;
  if (unwrap(element_).get(object)) return std::nullopt;
  std::optional<simdjson::dom::key_value_pair> found;
  for (const simdjson::dom::key_value_pair each : object)
    if (each.key == key) found.emplace(each);
  if (!found) return std::nullopt;
  return Json(document_, wrap<Element>(found->value), Step{here(), found->key, 0});
}

std::optional<Json> Json::find(std::string_view key) const {
  std::optional<Json> found = member(key);
  if (found && found->is(Type::null)) return std::nullopt;
  return found;
}

void Json::for_each_member(const std::function<void(std::string_view, const Json&)>& visit) const {
  simdjson::dom::object object;
  if (unwrap(element_).get(object)) fail_type("an object");
  const auto up = here();
  for (const auto& member : object)
    visit(member.key, Json(document_, wrap<Element>(member.value), Step{up, member.key, 0}));
}

void Json::for_each_element(const std::function<void(size_t, const Json&)>& visit) const {
  simdjson::dom::array array;
  if (unwrap(element_).get(array)) fail_type("an array");
  size_t index = 0;
  const auto up = here();
  for (const element value : array) {
    visit(index, Json(document_, wrap<Element>(value), Step{up, {}, index}));
    ++index;
  }
}

size_t Json::size() const {
  const element value = unwrap(element_);
  size_t count = 0;
  simdjson::dom::array array;
  simdjson::dom::object object;
  if (!value.get(array))
    for ([[maybe_unused]] const element each : array) ++count;
  else if (!value.get(object))
    for ([[maybe_unused]] const auto& each : object) ++count;
  return count;
}

void Json::refuse_repeated_names() const {
  if (is(Type::array))
    for_each_element([](size_t, const Json& element) { element.refuse_repeated_names(); });
  if (!is(Type::object)) return;
  std::set<std::string_view> names;
  for_each_member([&](std::string_view name, const Json& member) {
    if (!names.insert(name).second) member.fail("is there twice");
    member.refuse_repeated_names();
  });
}

std::string_view Json::as_string() const {
  std::string_view text;
  if (unwrap(element_).get(text)) fail_type("a string");
  return text;
}

int64_t Json::as_int() const {
  int64_t value = 0;
  if (!unwrap(element_).get(value)) return value;
  // Some writers print whole numbers as 1e5 or 131072.0.
  double number = 0;
  if (unwrap(element_).get(number) || number != std::floor(number) || std::fabs(number) > 9e15)
    fail_type("an integer");
  return static_cast<int64_t>(number);
}

uint64_t Json::as_uint(uint64_t limit) const {
  const int64_t value = as_int();
  if (value < 0 || static_cast<uint64_t>(value) > limit)
    fail(fmt::format("{} is outside 0..{}", value, limit));
  return static_cast<uint64_t>(value);
}

double Json::as_double() const {
  double value = 0;
  if (unwrap(element_).get(value)) fail_type("a number");
  return value;
}

bool Json::as_bool() const {
  bool value = false;
  if (unwrap(element_).get(value)) fail_type("a boolean");
  return value;
}

std::string Json::string_or(std::string_view key, std::string_view fallback) const {
  const auto value = find(key);
  return std::string(value ? value->as_string() : fallback);
}

uint64_t Json::uint_or(std::string_view key, uint64_t fallback, uint64_t limit) const {
  const auto value = find(key);
  return value ? value->as_uint(limit) : fallback;
}

double Json::double_or(std::string_view key, double fallback) const {
  const auto value = find(key);
  return value ? value->as_double() : fallback;
}

bool Json::bool_or(std::string_view key, bool fallback) const {
  const auto value = find(key);
  return value ? value->as_bool() : fallback;
}

}  // namespace tyto
