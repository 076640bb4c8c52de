#include "base/json_value.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"
#include "base/utf8.h"

namespace tyto {
namespace {

void append_text(std::string& to, std::string_view text) {
  constexpr std::string_view kEscaped = "\"\\\b\f\n\r\t", kNames = "\"\\bfnrt";
  to += '"';
  while (!text.empty()) {
    const auto byte = static_cast<unsigned char>(text.front());
    const Utf8Head head = utf8_head(text);
    if (const size_t known = kEscaped.find(text.front()); known != kEscaped.npos)
      (to += '\\') += kNames[known];
    else if (byte < 0x20)
      to += fmt::format("\\u{:04x}", byte);
    else
      to += head.kind == Utf8Head::Kind::valid ? text.substr(0, head.bytes) : kReplacementCharacter;
    text.remove_prefix(head.bytes);
  }
  to += '"';
}

// The shortest digits that read back as the number. It keeps a point or an exponent, so that it
// stays a number with a fraction for readers that tell it from an integer.
void append_number(std::string& to, double number) {
  constexpr int kLeastPoint = -4,
                kMostPoint = 15;  // as powers of ten between which none is written
  if (!std::isfinite(number)) {
    to += "null";
    return;
  }
  std::array<char, 32> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), std::fabs(number),
                                 std::chars_format::scientific);
  const std::string_view written(buffer.data(), static_cast<size_t>(end.ptr - buffer.data()));
  const size_t e = written.find('e');
  int exponent = 0;
  const size_t sign = written[e + 1] == '+' ? 1 : 0;
  std::from_chars(written.data() + e + 1 + sign, end.ptr, exponent);
  std::string digits(1, written.front());
  if (e > 2) digits += written.substr(2, e - 2);
  const int count = static_cast<int>(digits.size()), point = exponent + 1;
  if (std::signbit(number)) to += '-';
  if (number == 0)
    to += "0.0";
  else if (count <= point && point <= kMostPoint)
    to += digits + std::string(static_cast<size_t>(point - count), '0') + ".0";
  else if (0 < point && point <= kMostPoint)
    to += digits.insert(static_cast<size_t>(point), ".");
  else if (kLeastPoint < point && point <= 0)
    to += "0." + std::string(static_cast<size_t>(-point), '0') + digits;
  else
    to += (count > 1 ? digits.insert(1, ".") : digits) +
          fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
}

void append_break(std::string& to, int indent, int depth) {
  if (indent < 0) return;
  to += '\n';
  to.append(static_cast<size_t>(indent * depth), ' ');
}

}  // namespace

JsonValue::JsonValue() noexcept = default;
JsonValue::JsonValue(const JsonValue&) = default;
JsonValue::JsonValue(JsonValue&&) noexcept = default;
JsonValue& JsonValue::operator=(JsonValue other) noexcept {
  value_ = std::move(other.value_);
  return *this;
}
JsonValue::~JsonValue() = default;

JsonValue JsonValue::array() {
  JsonValue result;
  result.value_ = Array();
  return result;
}

JsonValue JsonValue::object() {
  JsonValue result;
  result.value_ = Object();
  return result;
}

JsonValue::JsonValue(std::initializer_list<Item> items) {
  const bool is_object = std::all_of(items.begin(), items.end(), [](const Item& item) {
    const Array* const pair = std::get_if<Array>(&item.value_.value_);
    return pair != nullptr && pair->size() == 2 && pair->front().is_string();
  });
  if (!is_object) {
    *this = array(items);
    return;
  }
  Object object;
  object.reserve(items.size());
  for (const Item& item : items) {
    Array& pair = item.value_.elements();
    object.emplace_back(std::move(std::get<std::string>(pair[0].value_)), std::move(pair[1]));
  }
  value_ = std::move(object);
}

JsonValue JsonValue::array(std::initializer_list<Item> items) {
  JsonValue result = array();
  result.elements().reserve(items.size());
  for (const Item& item : items) result.elements().push_back(std::move(item.value_));
  return result;
}

JsonValue::JsonValue(const Json& read) {
  switch (read.type()) {
    case Json::Type::object:
      value_ = Object();
      read.for_each_member(
          [&](std::string_view name, const Json& member) { (*this)[name] = JsonValue(member); });
      break;
    case Json::Type::array:
      value_ = Array();
      read.for_each_element(
          [&](size_t, const Json& element) { elements().push_back(JsonValue(element)); });
      break;
    case Json::Type::string:
      value_ = std::string(read.as_string());
      break;
    case Json::Type::integer: {
      const std::string digits = read.text();
      const char* const end = digits.data() + digits.size();
      int64_t number = 0;
      if (uint64_t large = 0; std::from_chars(digits.data(), end, number).ec == std::errc())
        value_ = number;
      else if (std::from_chars(digits.data(), end, large).ec == std::errc())
        value_ = large;
      break;
    }
    case Json::Type::number:
      value_ = read.as_double();
      break;
    case Json::Type::boolean:
      value_ = read.as_bool();
      break;
    case Json::Type::null:
      break;
  }
}

size_t JsonValue::size() const {
  if (is_array()) return elements().size();
  return is_object() ? members().size() : 0;
}

const JsonValue* JsonValue::find(std::string_view name) const {
  const Object* const object = std::get_if<Object>(&value_);
  if (object == nullptr) return nullptr;
  const auto found =
      std::find_if(object->begin(), object->end(), [&](const auto& m) { return m.first == name; });
  return found == object->end() ? nullptr : &found->second;
}

const JsonValue& JsonValue::at(std::string_view name) const {
  const JsonValue* const found = find(name);
  TYTO_ASSERT(found != nullptr);
  return *found;
}

JsonValue& JsonValue::operator[](std::string_view name) {
  if (is_null()) value_ = Object();
  if (const JsonValue* const found = find(name)) return const_cast<JsonValue&>(*found);
  return members().emplace_back(std::string(name), JsonValue()).second;
}

void JsonValue::push_back(JsonValue element) {
  if (is_null()) value_ = Array();
  elements().push_back(std::move(element));
}

void JsonValue::update(const JsonValue& other) {
  for (const auto& [name, member] : other.members()) (*this)[name] = member;
}

void JsonValue::erase(std::string_view name) {
  std::erase_if(members(), [&](const auto& member) { return member.first == name; });
}

std::string JsonValue::dump(int indent) const {
  std::string text;
  append(text, indent, 0);
  return text;
}

void JsonValue::append(std::string& to, int indent, int depth) const {
  if (is_array() || is_object()) {
    to += is_array() ? '[' : '{';
    const char* comma = "";
    const auto begin_next = [&] {
      to += std::exchange(comma, ",");
      append_break(to, indent, depth + 1);
    };
    if (is_array())
      for (const JsonValue& element : elements()) {
        begin_next();
        element.append(to, indent, depth + 1);
      }
    else
      for (const auto& [name, member] : members()) {
        begin_next();
        append_text(to, name);
        to += indent < 0 ? ":" : ": ";
        member.append(to, indent, depth + 1);
      }
    if (size() > 0) append_break(to, indent, depth);
    to += is_array() ? ']' : '}';
  } else if (is_string()) {
    append_text(to, text());
  } else if (const double* const number = std::get_if<double>(&value_)) {
    append_number(to, *number);
  } else if (const bool* const truth = std::get_if<bool>(&value_)) {
    to += *truth ? "true" : "false";
  } else if (const int64_t* const whole = std::get_if<int64_t>(&value_)) {
    to += std::to_string(*whole);
  } else if (const uint64_t* const large = std::get_if<uint64_t>(&value_)) {
    to += std::to_string(*large);
  } else {
    to += "null";
  }
}

bool JsonValue::operator==(const JsonValue& other) const {
  const auto number = [](const JsonValue& of) -> const double* {
    return std::get_if<double>(&of.value_);
  };
  const auto whole = [](const JsonValue& of) -> const int64_t* {
    return std::get_if<int64_t>(&of.value_);
  };
  if (number(*this) && whole(other)) return *number(*this) == static_cast<double>(*whole(other));
  if (whole(*this) && number(other)) return other == *this;
  return value_ == other.value_;
}

}  // namespace tyto
