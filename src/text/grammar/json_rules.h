// The rules of a grammar of JSON while it is being written.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"

namespace tyto {

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

}  // namespace tyto
