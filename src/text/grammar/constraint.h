// What a grammar leaves of the vocabulary, token by token.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "text/grammar/grammar_matcher.h"
#include "text/grammar/token_trie.h"

namespace tyto {

// One per answer. A token is allowed if the answer's text with its bytes is the beginning of a
// sentence of the grammar; one that ends the text, if the text is a sentence.
class Constraint {
 public:
  Constraint(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> tokens);

  // A bit per token, the lowest bit of the first word first; until the next call of anything here.
  // An unsupported Error where the grammar is too ambiguous to go on with.
  std::span<const uint64_t> allowed();
  void accept(Token token);                                      // that was allowed
  bool is_complete() const { return matcher_.may_end(place_); }  // the text is a sentence

 private:
  using Mask = std::vector<uint64_t>;
  Mask mask();
  void forget_if_large();

  const std::shared_ptr<const TokenTrie> tokens_;  // shared with all answers of the model
  GrammarMatcher matcher_;
  GrammarMatcher::Place place_;
  bool drops_space_;  // before the first token, where the vocabulary does
  std::unordered_map<GrammarMatcher::Place, Mask> masks_;
  std::vector<GrammarMatcher::Place> path_;  // of the walk, by depth
};

}  // namespace tyto
