// Reading JSON from elsewhere: bounded depth and size, and every complaint names the file
// and the field. A thin value layer over simdjson's DOM, which stays out of this header.
// base/json_value.h writes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace tyto {

struct JsonDocument;  // owns the parsed text

// A value inside a document, and the path that led to it. Cheap to copy; shares the document.
class Json {
 public:
  enum class Type { object, array, string, integer, number, boolean, null };

  // `name` is how errors call the text, usually the file's path.
  static Json parse(std::string_view text, const std::string& name);
  static Json parse_file(const std::string& path, uint64_t limit_bytes);

  Type type() const;
  bool is(Type wanted) const { return type() == wanted; }
  std::string path() const;  // "config.json: rope_scaling.factor", composed when asked for

  // Object members: at() throws when absent, find() gives nullopt when absent or null. Of members
  // with the same name the last counts, as for the Python programs that write and read these files.
  Json at(std::string_view key) const;
  std::optional<Json> find(std::string_view key) const;
  void for_each_member(const std::function<void(std::string_view key, const Json&)>&) const;
  void for_each_element(const std::function<void(size_t index, const Json&)>&) const;
  size_t size() const;  // an array's or object's; linear
  // For evidence, in which two readers must not see two things: an error where an object in this
  // value, at any depth, has two members of one name.
  void refuse_repeated_names() const;

  // Typed reads; a value of another type is an error naming the field.
  std::string_view as_string() const;  // valid while any Json of the document lives
  int64_t as_int() const;
  uint64_t as_uint(uint64_t limit) const;  // refuses negatives and values above limit
  double as_double() const;                // integers too
  bool as_bool() const;

  // Reads with a default for an absent or null member.
  std::string string_or(std::string_view key, std::string_view fallback) const;
  uint64_t uint_or(std::string_view key, uint64_t fallback, uint64_t limit) const;
  double double_or(std::string_view key, double fallback) const;
  bool bool_or(std::string_view key, bool fallback) const;

  std::string text() const;  // the value as JSON, without white space

  [[noreturn]] void fail(const std::string& what) const;  // throws an Error at this field

 private:
  // The same layout as simdjson::dom::element (checked in json.cc).
  struct Element {
    const void* document;
    size_t index;
  };
  // One step of a path. Steps are shared by siblings, so that walking a vocabulary of 128k entries
  // formats no text unless something is wrong with one of them.
  struct Step {
    std::shared_ptr<const Step> up;
    std::string_view key;  // in the document; no data: an array index
    size_t index = 0;
  };

  Json(std::shared_ptr<const JsonDocument> document, Element element, Step step)
      : document_(std::move(document)), element_(element), step_(std::move(step)) {}
  std::shared_ptr<const Step> here() const { return std::make_shared<const Step>(step_); }
  [[noreturn]] void fail_type(std::string_view wanted) const;
  std::optional<Json> member(std::string_view key) const;  // for objects

  std::shared_ptr<const JsonDocument> document_;  // shared by every Json of one text
  Element element_;
  Step step_;
};

// What is wrong with a text that should be JSON, in words for people. Inside base only.

// "line 3, column 7: expected a comma or }, found 'x'"; empty where the grammar finds no fault.
std::string json_fault(std::string_view text);

}  // namespace tyto
