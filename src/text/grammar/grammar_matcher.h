// Follows a text through a grammar, all ways at once. Where it may be is a Place; places are
// numbered as they are met, and what a byte leads to is worked out once, so that a text inside a
// string costs a table look-up per byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_set>
#include <vector>

#include "text/grammar/grammar.h"
#include "text/grammar/interned_sets.h"

namespace tyto {

class GrammarMatcher {
 public:
  using Place = uint32_t;
  static constexpr Place kNowhere = 0;  // no sentence begins so

  explicit GrammarMatcher(std::shared_ptr<const Grammar> grammar);

  Place start() const { return start_; }
  Place next(Place from, uint8_t byte) {
    const Place known = next_[from * size_t{classes_} + grammar_->class_of(byte)];
    return known != kUnknown ? known : work_out(from, byte);
  }
  bool may_end(Place place) const;  // the text is a sentence

  // New places are worked out between two calls of this only so far; then an unsupported Error.
  // Ambiguous grammars have no end of places.
  void allow_work() { work_ = 0; }

  size_t bytes() const;          // of memory
  Place forget_but(Place kept);  // all other places; returns the number it has now

 private:
  // A state of the grammar and, behind it, the stack: both items of a place and frames of a stack.
  // A stack is a set of frames, for all callers of a rule at one point of the text: they are
  // matched together whatever comes after, which keeps ambiguous grammars from multiplying.
  using Item = uint64_t;
  static Item item_of(Grammar::State state, uint32_t stack) {
    return uint64_t{state} << 32 | stack;
  }
  static Grammar::State state_of(Item item) { return static_cast<Grammar::State>(item >> 32); }
  static uint32_t stack_of(Item item) { return static_cast<uint32_t>(item); }
  static constexpr Item kFinished = 0;  // Grammar::kFinished on the empty stack
  static constexpr Place kUnknown = UINT32_MAX;

  Place work_out(Place from, uint8_t byte);
  Place place_of_pending();
  Place place_of(std::vector<Item>& items);
  void take(Item item);
  void spend(size_t work);

  const std::shared_ptr<const Grammar> grammar_;  // shared with other answers' matchers
  const uint32_t classes_;
  InternedSets stacks_;
  InternedSets places_;
  std::vector<Place> next_;  // [places][classes]
  Place start_ = kNowhere;
  size_t work_ = 0;
  // Scratch of place_of_pending.
  std::vector<Item> pending_;
  std::vector<Item> items_;
  std::unordered_set<Item> seen_;
  std::map<Grammar::Rule, std::vector<Item>> callers_;
};

}  // namespace tyto
