// A JSON value that is made to be written; base/json.h reads. Its destructor and its moves allocate
// nothing: where memory runs out, std::bad_alloc leaves a function that may throw, and the server
// loses a request instead of its process.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <ranges>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"

namespace tyto {

class JsonValue {
 public:
  using Array = std::vector<JsonValue>;
  using Object = std::vector<std::pair<std::string, JsonValue>>;  // in the order of their making
  class Item;

  JsonValue() noexcept;
  JsonValue(const JsonValue&);
  JsonValue(JsonValue&&) noexcept;
  // By value, so that a member may become another member's copy.
  JsonValue& operator=(JsonValue other) noexcept;
  ~JsonValue();
  JsonValue(std::nullptr_t) : JsonValue() {}
  JsonValue(std::string text) : value_(std::move(text)) {}
  JsonValue(std::string_view text) : value_(std::string(text)) {}
  JsonValue(const char* text) : value_(std::string(text)) {}
  template <typename Number>
    requires std::is_arithmetic_v<Number>
  JsonValue(Number number) {
    if constexpr (std::is_same_v<Number, bool>)
      value_ = number;
    else if constexpr (std::is_floating_point_v<Number>)
      value_ = static_cast<double>(number);
    else if (std::in_range<int64_t>(number))
      value_ = static_cast<int64_t>(number);
    else
      value_ = static_cast<uint64_t>(number);
  }
  // An object of a map, an array of any other list.
  template <std::ranges::input_range List>
    requires(!std::is_convertible_v<const List&, std::string> &&
             !std::is_convertible_v<const List&, std::string_view>)
  JsonValue(const List& list) {
    if constexpr (requires { typename List::mapped_type; }) {
      value_ = Object();
      for (const auto& [name, member] : list) members().emplace_back(name, JsonValue(member));
    } else {
      value_ = Array();
      for (const auto& element : list) elements().push_back(JsonValue(element));
    }
  }
  // An object where each item is a pair that begins with a string, else an array.
  JsonValue(std::initializer_list<Item> items);
  // What was read. Integers beyond 64 bits have become numbers with a fraction.
  explicit JsonValue(const Json& read);

  static JsonValue array();
  static JsonValue array(std::initializer_list<Item> items);
  static JsonValue object();

  bool is_null() const { return value_.index() == 0; }
  bool is_string() const { return is<std::string>(); }
  bool is_array() const { return is<Array>(); }
  bool is_object() const { return is<Object>(); }
  const std::string& text() const { return std::get<std::string>(value_); }
  Array& elements() { return std::get<Array>(value_); }
  const Array& elements() const { return std::get<Array>(value_); }
  Object& members() { return std::get<Object>(value_); }
  const Object& members() const { return std::get<Object>(value_); }
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  size_t size() const;  // an array's or object's; 0 for others

  // A member, made null where it is missing; null becomes an object.
  JsonValue& operator[](std::string_view name);
  JsonValue& operator[](const char* name) { return (*this)[std::string_view(name)]; }
  const JsonValue& at(std::string_view name) const;  // which is there
  JsonValue& operator[](size_t index) { return elements().at(index); }
  const JsonValue& operator[](size_t index) const { return elements().at(index); }
  void push_back(JsonValue element);    // null becomes an array
  void update(const JsonValue& other);  // the members of another object replace these
  void erase(std::string_view name);    // which may be missing

  // Without white space, or with that many blanks for each level. U+FFFD stands for what is not
  // UTF-8, and null for a number that JSON does not have.
  std::string dump(int indent = -1) const;

  bool operator==(const JsonValue& other) const;

 private:
  template <typename Kind>
  bool is() const {
    return std::holds_alternative<Kind>(value_);
  }
  const JsonValue* find(std::string_view name) const;
  void append(std::string& text, int indent, int depth) const;

  // An integer is a uint64_t only where it is no int64_t.
  std::variant<std::nullptr_t, bool, int64_t, uint64_t, double, std::string, Array, Object> value_;
};

// An element of a list in braces, which is moved out of it.
class JsonValue::Item {
 public:
  template <typename Value>
    requires(!std::is_same_v<std::remove_cvref_t<Value>, Item> &&
             std::is_constructible_v<JsonValue, Value &&>)
  Item(Value&& value) : value_(std::forward<Value>(value)) {}
  Item(std::initializer_list<Item> items) : value_(items) {}

 private:
  friend class JsonValue;
  mutable JsonValue value_;
};

}  // namespace tyto
