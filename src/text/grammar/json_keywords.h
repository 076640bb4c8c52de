// What the schemas of a JSON schema document say of a value, keyword by keyword.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/grammar/json_number.h"

namespace tyto {

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

}  // namespace tyto
