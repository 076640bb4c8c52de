// Rules to states, the first half of compiling a grammar: one state for each place where something
// remains to be matched. Equal states are one.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "text/grammar/byte_set.h"
#include "text/grammar/gbnf.h"

namespace tyto {

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

}  // namespace tyto
