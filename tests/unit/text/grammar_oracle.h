// The plain definition of what a grammar matches: where each expression may end, by trying.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "text/grammar/gbnf.h"

namespace tyto {

class GrammarOracle {
 public:
  explicit GrammarOracle(const std::string& gbnf) : text_(parse_gbnf(gbnf)) {
    ends_.resize(text_.rules.size());
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      for (size_t rule = 0; rule < text_.rules.size(); ++rule)
        if (!ends_[rule] && can_end(text_.rules[rule].body)) goes_on = ends_[rule] = true;
    }
  }

  bool is_sentence(std::string_view input) { return run(input), is_sentence_; }
  bool is_prefix(std::string_view input) { return run(input), is_prefix_; }

 private:
  using Places = std::set<size_t>;

  // Some text that ends matches it.
  bool can_end(const Expression& expression) const {
    const auto part_can = [&](const Expression& part) { return can_end(part); };
    switch (expression.kind) {
      case Expression::Kind::text:
        return true;
      case Expression::Kind::characters:
        return !expression.ranges.empty();
      case Expression::Kind::rule:
        return ends_[expression.rule];
      case Expression::Kind::sequence:
        return std::ranges::all_of(expression.parts, part_can);
      case Expression::Kind::choice:
        return std::ranges::any_of(expression.parts, part_can);
      case Expression::Kind::repeat:
        return expression.least == 0 || can_end(expression.parts[0]);
    }
    return false;
  }

  void run(std::string_view input) {
    input_ = input;
    known_.clear();
    is_prefix_ = false;
    is_sentence_ = ends(text_.rules[text_.root].body, 0).contains(input.size());
    is_prefix_ |= is_sentence_;
  }

  // Where a match that begins at `from` may end. Running out of input in the middle makes the input
  // a prefix: nothing is entered that cannot be finished.
  Places ends(const Expression& expression, size_t from) {
    if (!can_end(expression)) return {};
    const auto known = known_.find({&expression, from});
    if (known != known_.end()) return known->second;
    return known_[{&expression, from}] = find_ends(expression, from);
  }

  Places find_ends(const Expression& expression, size_t from) {
    const std::string_view rest = input_.substr(from);
    Places found;
    switch (expression.kind) {
      case Expression::Kind::text:
        if (rest.starts_with(expression.text)) return {from + expression.text.size()};
        is_prefix_ |= expression.text.starts_with(rest);
        return {};
      case Expression::Kind::characters:
        return character_ends(expression, from);
      case Expression::Kind::rule:
        return ends(text_.rules[expression.rule].body, from);
      case Expression::Kind::sequence:
        found = {from};
        for (const Expression& part : expression.parts) found = after(part, found);
        return found;
      case Expression::Kind::choice:
        for (const Expression& part : expression.parts) found.merge(ends(part, from));
        return found;
      case Expression::Kind::repeat:
        return repeat_ends(expression, from);
    }
    return found;
  }

  Places after(const Expression& part, const Places& places) {
    Places found;
    for (const size_t place : places) found.merge(ends(part, place));
    return found;
  }

  Places repeat_ends(const Expression& repeat, size_t from) {
    Places at = {from};
    for (uint32_t i = 0; i < repeat.least; ++i) at = after(repeat.parts[0], at);
    Places all = at;
    for (uint32_t i = repeat.least; i < repeat.most && !at.empty(); ++i) {
      Places fresh;
      for (const size_t place : after(repeat.parts[0], at))
        if (all.insert(place).second) fresh.insert(place);
      at = fresh;
    }
    return all;
  }

  Places character_ends(const Expression& expression, size_t from) {
    const std::string_view rest = input_.substr(from);
    for (const CharacterRange& range : expression.ranges)
      for (char32_t each = range.first; each <= range.last; ++each) {
        std::string spelled;
        append_utf8(each, spelled);
        if (rest.starts_with(spelled)) return {from + spelled.size()};
        is_prefix_ |= spelled.starts_with(rest);
      }
    return {};
  }

  GrammarText text_;
  std::vector<bool> ends_;  // [rules]
  std::string_view input_;
  std::map<std::pair<const Expression*, size_t>, Places> known_;
  bool is_prefix_ = false;
  bool is_sentence_ = false;
};

}  // namespace tyto
