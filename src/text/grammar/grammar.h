// A grammar made ready for matching: a pushdown automaton over bytes, so that a token which holds
// half a character, or the end of one rule and the beginning of another, is nothing special.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/grammar/gbnf.h"

namespace tyto {

// A set of bytes.
struct ByteSet {
  std::array<uint64_t, 4> words{};

  void add(unsigned byte) { words[byte / 64] |= uint64_t{1} << (byte % 64); }
  bool has(unsigned byte) const { return (words[byte / 64] >> (byte % 64) & 1) != 0; }
  bool is_empty() const { return *this == ByteSet{}; }
  ByteSet& operator|=(const ByteSet& other) {
    for (size_t i = 0; i < words.size(); ++i) words[i] |= other.words[i];
    return *this;
  }
  auto operator<=>(const ByteSet&) const = default;
};

// Ranges of characters as ranges of bytes in UTF-8.

struct ByteInterval {
  uint8_t first = 0;
  uint8_t last = 0;
};

// One to four bytes, each any of its range.
using ByteRanges = std::vector<ByteInterval>;

// Sequences that together spell every character of the range, and nothing else. Surrogates have no
// spelling.
std::vector<ByteRanges> utf8_sequences(CharacterRange range);

// Sets of numbers, each stored once: equal sets have equal ids.

class InternedSets {
 public:
  InternedSets();  // has the empty set, whose id is 0

  uint32_t intern(std::span<const uint64_t> sorted);  // distinct
  std::span<const uint64_t> operator[](uint32_t id) const {
    return std::span(values_).subspan(begins_[id], begins_[id + 1] - begins_[id]);
  }
  size_t size() const { return begins_.size() - 1; }
  size_t bytes() const {
    return values_.size() * sizeof(uint64_t) + slots_.size() * 2 * sizeof(uint32_t);
  }

 private:
  size_t slot_of(std::span<const uint64_t> sorted) const;
  void grow();

  std::vector<uint64_t> values_;
  std::vector<size_t> begins_;   // [sets + 1]
  std::vector<uint32_t> slots_;  // ids + 1; a power of two, never full; 0: free
};

// Rules to states, the first half of compiling a grammar: one state for each place where something
// remains to be matched. Equal states are one.

// What may come next at a place.
struct Moves {
  std::map<uint32_t, ByteSet> bytes = {};                 // by target
  std::vector<std::pair<uint32_t, uint32_t>> calls = {};  // rule of GrammarText, target
  std::vector<uint32_t> skips = {};                       // to targets, without a byte
  bool ends_rule = false;
};

class StateBuilder {
 public:
  static constexpr uint32_t kFinished = 0, kEndOfRule = 1;

  // Builds the rules that can be reached from the root. A grammar that becomes too large is an
  // input Error.
  explicit StateBuilder(const GrammarText& text);

  const std::vector<Moves>& states() const { return states_; }
  bool is_built(uint32_t rule) const { return starts_[rule] != kFinished; }
  uint32_t start_of(uint32_t rule) const { return starts_[rule]; }

  // Which states reach the end of their rule, through bytes too or only with the empty text.
  std::vector<bool> reach_end(bool through_bytes) const;

 private:
  Moves moves(const Expression& expression, uint32_t next);
  Moves text_moves(const std::string& text, uint32_t next);
  Moves character_moves(const std::vector<CharacterRange>& ranges, uint32_t next);
  Moves repeat_moves(const Expression& repeat, uint32_t next);
  uint32_t state_of(Moves moves);
  uint32_t new_state(Moves moves);
  void spend(size_t work);

  std::vector<Moves> states_;
  std::vector<uint32_t> starts_;   // [rules], kFinished: not built
  std::vector<uint32_t> pending_;  // rules to build
  std::map<std::vector<uint64_t>, uint32_t> known_;
  size_t work_ = 0;
};

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
