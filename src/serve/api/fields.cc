#include "serve/api/fields.h"

#include <fmt/format.h>

#include <optional>

#include "serve/api/errors.h"

namespace tyto::api {
namespace {

constexpr size_t kMostTokens = 1 << 20;

[[noreturn]] void fail_count(const Json& value, size_t most) {
  value.fail(fmt::format("has {} entries; at most {} are taken", value.size(), most));
}

bool holds_integers(const Json& array) {
  bool all = array.size() > 0;
  array.for_each_element(
      [&](size_t, const Json& element) { all = all && element.is(Json::Type::integer); });
  return all;
}

TextOrTokens text_or_tokens_of(const Json& value) {
  if (value.is(Json::Type::array)) return {.tokens = tokens_of(value), .is_tokens = true};
  return {.text = text_of(value)};
}

}  // namespace

std::string param_of(const Json& value) {
  const std::string path = value.path(), prefix = fmt::format("{}: ", kRequestName);
  return path.starts_with(prefix) ? path.substr(prefix.size()) : "";
}

void in_field(const Json& value, const std::function<void()>& read) {
  try {
    read();
  } catch (const RequestError&) {
    throw;
  } catch (const Error& error) {
    throw RequestError(error, param_of(value));
  }
}

double number_in(const Json& value, double low, double high) {
  const double number = value.as_double();
  if (!(number >= low && number <= high))
    value.fail(fmt::format("{} is outside {}..{}", number, low, high));
  return number;
}

int64_t integer_in(const Json& value, int64_t low, int64_t high) {
  const int64_t number = value.as_int();
  if (number < low || number > high)
    value.fail(fmt::format("{} is outside {}..{}", number, low, high));
  return number;
}

std::string text_of(const Json& value) {
  return std::string(value.as_string());
}

std::vector<std::string> texts_of(const Json& value, size_t most) {
  if (value.is(Json::Type::string)) return {text_of(value)};
  std::vector<std::string> texts;
  value.for_each_element([&](size_t, const Json& element) { texts.push_back(text_of(element)); });
  if (texts.size() > most) fail_count(value, most);
  return texts;
}

std::vector<Token> tokens_of(const Json& value) {
  std::vector<Token> tokens;
  value.for_each_element([&](size_t, const Json& element) {
    tokens.push_back(static_cast<Token>(integer_in(element, 0, INT32_MAX)));
  });
  if (tokens.size() > kMostTokens) fail_count(value, kMostTokens);
  return tokens;
}

std::vector<TextOrTokens> texts_or_tokens_of(const Json& value, size_t most) {
  if (!value.is(Json::Type::array) || holds_integers(value)) return {text_or_tokens_of(value)};
  std::vector<TextOrTokens> entries;
  value.for_each_element(
      [&](size_t, const Json& element) { entries.push_back(text_or_tokens_of(element)); });
  if (entries.empty()) value.fail("is empty");
  if (entries.size() > most) fail_count(value, most);
  return entries;
}

Json required_field(const Json& object, std::string_view name) {
  if (auto value = object.find(name)) return *std::move(value);
  throw RequestError(400, "missing_required_parameter", std::string(name), "the field is missing");
}

Json parse_body(std::string_view body) {
  std::optional<Json> json;
  try {
    json = Json::parse(body, kRequestName);
  } catch (const Error& error) {
    throw RequestError(error, "");
  }
  if (!json->is(Json::Type::object))
    throw RequestError(Error(ErrorCode::input, kRequestName, "expected an object"), "");
  return *json;
}

}  // namespace tyto::api
