// A grammar made ready for matching: a pushdown automaton over bytes, so that a token which holds
// half a character, or the end of one rule and the beginning of another, is nothing special.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "text/grammar/byte_set.h"

namespace tyto {

// Immutable. From every state a whole sentence can still be reached, and no rule begins with
// itself, so that whatever can be matched so far is a prefix of a sentence.
class Grammar {
 public:
  using State = uint32_t;
  using Rule = uint32_t;  // a rule begins only with rules of higher numbers

  struct ByteEdge {
    uint32_t set = 0;
    State target = 0;
  };
  struct CallEdge {
    Rule rule = 0;
    State target = 0;
    bool is_tail = false;  // nothing is left to do at the target
  };

  static constexpr State kFinished = 0;  // where the root rule returns to; no edges

  // GBNF with a rule "root". An input Error for what is not GBNF, for rules that begin with
  // themselves, for a language without sentences, and for what becomes too large.
  explicit Grammar(std::string_view gbnf);

  std::span<const ByteEdge> byte_edges(State state) const {
    return between(byte_edges_, states_[state].bytes, states_[state + 1].bytes);
  }
  std::span<const CallEdge> call_edges(State state) const {
    return between(call_edges_, states_[state].calls, states_[state + 1].calls);
  }
  bool ends_rule(State state) const { return states_[state].ends_rule; }
  const ByteSet& bytes_of(const ByteEdge& edge) const { return sets_[edge.set]; }
  Rule root() const { return root_; }
  State start_of(Rule rule) const { return starts_[rule]; }
  bool may_be_empty() const { return may_be_empty_; }

  // Bytes that no edge tells apart.
  uint32_t classes() const { return classes_; }
  uint32_t class_of(uint8_t byte) const { return class_of_[byte]; }

 private:
  friend class GrammarCompiler;

  struct FirstEdges {
    uint32_t bytes = 0;
    uint32_t calls = 0;
    bool ends_rule = false;
  };
  template <typename Edge>
  static std::span<const Edge> between(const std::vector<Edge>& edges, uint32_t first,
                                       uint32_t end) {
    return std::span(edges).subspan(first, end - first);
  }

  std::vector<FirstEdges> states_;  // [states + 1]
  std::vector<ByteEdge> byte_edges_;
  std::vector<CallEdge> call_edges_;
  std::vector<ByteSet> sets_;
  std::vector<State> starts_;  // [rules]
  Rule root_ = 0;
  std::array<uint8_t, 256> class_of_{};
  uint32_t classes_ = 1;
  bool may_be_empty_ = false;
};

}  // namespace tyto
