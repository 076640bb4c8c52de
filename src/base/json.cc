#include "base/json.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <set>
#include <vector>

#include <fmt/format.h>
#include <simdjson.h>

#include "base/error.h"
#include "base/file.h"
#include "base/utf8.h"

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

namespace {

// What may stand at a place in the text.
enum class Wanted {
  value,
  value_or_end,  // behind [
  name,          // behind a comma in an object
  name_or_end,   // behind {
  colon,
  comma_or_end,
  nothing,  // behind the outermost value
};

struct Fault {
  size_t at;
  std::string what;
};

constexpr std::string_view kBlanks = " \t\r\n";
constexpr std::string_view kDigits = "0123456789";

class FaultFinder {
 public:
  explicit FaultFinder(std::string_view text) : text_(text) {}

  // Throws a Fault at the first place where the text is not JSON.
  void run() {
    for (;;) {
      at_ = std::min(text_.size(), text_.find_first_not_of(kBlanks, at_));
      if (at_ == text_.size()) break;
      take(text_[at_]);
    }
    if (wanted_ != Wanted::nothing) fail(at_, "the text ends too early, " + expected());
  }

 private:
  [[noreturn]] void fail(size_t at, const std::string& what) const { throw Fault{at, what}; }

  [[noreturn]] void fail_here() const {
    const std::string_view rest = text_.substr(at_);
    const size_t word = std::min(rest.find_first_of(" \t\r\n,:[]{}\""), rest.size());
    fail(at_, fmt::format("{}, found '{}'", expected(),
                          printable_line(rest.substr(0, std::max<size_t>(word, 1)), 20)));
  }

  std::string expected() const {
    const char* end = levels_.empty() || levels_.back() == '{' ? "}" : "]";
    switch (wanted_) {
      case Wanted::value:
        return "expected a value";
      case Wanted::value_or_end:
        return "expected a value or ]";
      case Wanted::name:
        return "expected a name in double quotes";
      case Wanted::name_or_end:
        return "expected a name in double quotes or }";
      case Wanted::colon:
        return "expected a colon behind the name";
      case Wanted::comma_or_end:
        return fmt::format("expected a comma or {}", end);
      case Wanted::nothing:
        return "expected nothing behind the end";
    }
    return "";
  }

  void take(char c) {
    const bool is_value = wanted_ == Wanted::value || wanted_ == Wanted::value_or_end;
    const bool is_name = wanted_ == Wanted::name || wanted_ == Wanted::name_or_end;
    if (is_value && (c == '{' || c == '[')) {
      levels_.push_back(c);
      ++at_;
      wanted_ = c == '{' ? Wanted::name_or_end : Wanted::value_or_end;
    } else if (is_name && c == '"') {
      take_string();
      wanted_ = Wanted::colon;
    } else if (wanted_ == Wanted::colon && c == ':') {
      ++at_;
      wanted_ = Wanted::value;
    } else if (wanted_ == Wanted::comma_or_end && c == ',') {
      ++at_;
      wanted_ = levels_.back() == '{' ? Wanted::name : Wanted::value;
    } else if (closes(c)) {
      levels_.pop_back();
      ++at_;
      end_value();
    } else if (is_value) {
      take_scalar(c);
      end_value();
    } else {
      fail_here();
    }
  }

  bool closes(char c) const {
    if (levels_.empty() || c != (levels_.back() == '{' ? '}' : ']')) return false;
    return wanted_ == Wanted::comma_or_end || wanted_ == Wanted::value_or_end ||
           wanted_ == Wanted::name_or_end;
  }

  void end_value() { wanted_ = levels_.empty() ? Wanted::nothing : Wanted::comma_or_end; }

  void take_scalar(char c) {
    if (c == '"') return take_string();
    if (c == '-' || kDigits.find(c) != kDigits.npos) return take_number();
    for (const std::string_view word : {"true", "false", "null"}) {
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += word.size();
      return;
    }
    fail_here();
  }

  size_t skip_digits(size_t from) const {
    return std::min(text_.size(), text_.find_first_not_of(kDigits, from));
  }

  void take_number() {
    const size_t begin = at_;
    const size_t end = std::min(text_.size(), text_.find_first_of(" \t\r\n,:[]{}\"", at_));
    const auto check = [&](bool is_good) {
      if (!is_good)
        fail(begin, fmt::format("'{}' is not a number",
                                printable_line(text_.substr(begin, end - begin), 20)));
    };
    if (text_[at_] == '-') ++at_;
    const size_t whole = at_;
    at_ = skip_digits(at_);
    check(at_ > whole && (text_[whole] != '0' || at_ == whole + 1));
    if (at_ < end && text_[at_] == '.') {
      const size_t fraction = ++at_;
      at_ = skip_digits(at_);
      check(at_ > fraction);
    }
    if (at_ < end && (text_[at_] == 'e' || text_[at_] == 'E')) {
      ++at_;
      if (at_ < end && (text_[at_] == '+' || text_[at_] == '-')) ++at_;
      const size_t exponent = at_;
      at_ = skip_digits(at_);
      check(at_ > exponent);
    }
    check(at_ == end);
  }

  void take_string() {
    const size_t begin = at_++;
    for (; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      const auto byte = static_cast<unsigned char>(text_[at_]);
      if (byte == '\n') fail(begin, "the text in quotes is not closed on its line");
      if (byte < 0x20) fail(at_, fmt::format("the control character \\u{:04x} in quotes", byte));
      if (byte == '\\') take_escape();
    }
    if (at_ == text_.size()) fail(begin, "the text in quotes is not closed");
    ++at_;
  }

  // Leaves `at_` on its last character.
  void take_escape() {
    const size_t begin = at_++;
    if (at_ == text_.size()) return;
    if (text_[at_] == 'u') {
      constexpr size_t kHexDigits = 4;
      const std::string_view hex = text_.substr(at_ + 1, kHexDigits);
      const bool is_hex =
          hex.size() == kHexDigits && hex.find_first_not_of("0123456789abcdefABCDEF") == hex.npos;
      if (!is_hex) fail(begin, "\\u needs four hexadecimal digits");
      at_ += kHexDigits;
    } else if (std::string_view("\"\\/bfnrt").find(text_[at_]) == std::string_view::npos) {
      fail(begin, fmt::format("JSON has no \\{}", printable_line(text_.substr(at_, 1))));
    }
  }

  std::string_view text_;
  size_t at_ = 0;
  Wanted wanted_ = Wanted::value;
  std::vector<char> levels_;
};

std::string with_place(std::string_view text, size_t at, const std::string& what) {
  const std::string_view before = text.substr(0, at);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t begin = before.rfind('\n') == before.npos ? 0 : before.rfind('\n') + 1;
  return fmt::format("line {}, column {}: {}", line, at - begin + 1, what);
}

}  // namespace

std::string json_fault(std::string_view text) {
  if (const size_t valid = valid_utf8_prefix(text); valid < text.size())
    return with_place(text, valid, "this byte is not UTF-8");
  try {
    FaultFinder(text).run();
  } catch (const Fault& fault) {
    return with_place(text, fault.at, fault.what);
  }
  return "";
}

}  // namespace tyto
