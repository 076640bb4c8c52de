// Grammars of JSON: any object, or what a JSON schema describes (docs/grammar.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "text/grammar/grammar.h"

namespace tyto {

// Numbers between bounds, as GBNF.

struct NumberBound {
  int64_t value = 0;
  bool is_open = false;  // the value itself is outside
};

struct NumberBounds {
  std::optional<NumberBound> least;
  std::optional<NumberBound> most;
};

// One of the numbers, without an exponent. Digits are bounded where the bounds do not say, so that
// a number ends.
std::string gbnf_integer(const NumberBounds& bounds);
std::string gbnf_number(const NumberBounds& bounds);

// What the schemas of a JSON schema document say of a value, keyword by keyword.

// All that is said of a value, by one schema or by several at once. What is said twice holds twice.
using Keywords = std::multimap<std::string_view, Json>;
using Schemas = std::vector<Json>;  // a value is of all of them

[[noreturn]] void unsupported(const Json& at, const std::string& what);

bool is_constraint(std::string_view keyword);  // one that may forbid values
// An unsupported Error at a keyword that forbids what a grammar cannot.
void check_supported(const Keywords& keywords);

Schemas all_of(const Keywords& keywords, std::string_view name);
const Json* only(const Keywords& keywords, std::string_view name);  // null: it is not there

// A keyword that is about values of one type.
const Json* find_typed(const Keywords& keywords);  // null: there is none
bool has_type(const Json& value, std::string_view type);
// A schema without a type that has keywords of some types is of those; without any, of all.
std::set<std::string_view> types_of(const Keywords& keywords);
bool is_any_value(const Keywords& keywords);

struct Counts {
  uint64_t least = 0;
  std::optional<uint64_t> most = {};
  bool is_empty() const { return most && *most < least; }
};
Counts counts_of(const Keywords& keywords, std::string_view least, std::string_view most);

NumberBounds bounds_of(std::string_view type, const Keywords& keywords);

class SchemaDocument {
 public:
  explicit SchemaDocument(const Json& top) : top_(top) {}

  const Json& top() const { return top_; }
  // The schema that a "$ref" means: "#/$defs/name", a path from the top.
  Json resolve(const Json& reference) const;
  // Adds all keywords of a schema, of those it refers to, and of those that hold as well.
  void collect(const Json& schema, Keywords& into) { collect(schema, into, 0); }
  // Documents may say much in few words; an input Error when it becomes too much.
  void spend(const Json& at, size_t work);

 private:
  void collect(const Json& schema, Keywords& into, size_t depth);

  const Json top_;
  const Json no_values_ = Json::parse("[]", "JSON schema");
  size_t work_ = 0;
};

// The rules of a grammar of JSON while it is being written.

class JsonRules {
 public:
  explicit JsonRules(std::string root) : root_(std::move(root)) {}

  const std::string& root() const { return root_; }
  // A name that no other rule has; `hint` is for people.
  std::string new_name(std::string_view hint);
  void define(const std::string& name, const std::string& expression);
  std::string add(std::string_view hint, const std::string& expression);  // returns its name

  // Rules that need no schema: "ws", "char", "string", "value", "date" ... Returns its name.
  std::string plain(std::string_view which);

  // A string that is none of these, as the name of a member. Returns its name.
  std::string other_string(const std::vector<std::string>& names);

  std::string text() const;  // the root's rule first

 private:
  std::string other_tail(const std::vector<std::u32string>& names, size_t depth);

  std::string root_;
  std::vector<std::pair<std::string, std::string>> rules_;
  std::vector<std::string_view> plain_;  // those that are there
  size_t names_ = 0;
  size_t bytes_ = 0;
};

// A value as JSON writes it, without blanks.
std::string json_text(const Json& value);
std::string json_string(std::string_view text);

// GBNF for the values that the schema describes. All of its rules are called `rule` or begin with
// `rule` and a dash, so that several schemas have room in one grammar. A schema that is broken is
// an input Error, one that says what a grammar cannot an unsupported one; both name the place.
std::string gbnf_from_json_schema(const Json& schema, const std::string& rule = "root");

Grammar grammar_from_json_schema(const Json& schema);

// Any JSON object or any JSON value, in the same way.
enum class JsonKind { object, value };
std::string gbnf_of_json(JsonKind kind, const std::string& rule = "root");

// Regular expressions of JSON schemas ("pattern") as GBNF.

// What may stand between the quotes of a JSON string whose value matches. `any_character` is the
// rule for one character of a JSON string. Literals, classes, groups, alternatives, repetitions,
// and anchors at the ends; the rest is an unsupported Error at `pattern`.
std::string gbnf_from_pattern(const Json& pattern, const std::string& any_character);

}  // namespace tyto
