// What a grammar leaves of the vocabulary, token by token.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/grammar/matcher.h"
#include "text/reasoning.h"

namespace tyto {

// Where in a text an answer begins.
struct AnswerPlace {
  std::optional<ThoughtsAhead> thoughts = {};  // that come before it
  bool continues_text = false;                 // with no dummy space of the vocabulary's before it
};

// One per answer. A token is allowed if the answer's text with its bytes is the beginning of a
// sentence of the grammar; one that ends the text, if the text is a sentence. Thoughts before the
// answer are free, but nothing ends the text there. A token that ends them may have more bytes,
// which are the answer's.
class Constraint {
 public:
  Constraint(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> tokens,
             AnswerPlace begin = {});

  // A bit per token, the lowest bit of the first word first; until the next call of anything here.
  // An unsupported Error where the grammar is too ambiguous to go on with.
  std::span<const uint64_t> allowed();
  void accept(Token token);  // that was allowed
  bool is_complete() const;  // the text is a sentence

 private:
  using Mask = std::vector<uint64_t>;
  // A place in the grammar, or in white space before the text, which is no part of it.
  struct Step {
    GrammarMatcher::Place place;
    bool skips_space;
  };
  Mask mask();
  Mask mask_of_thoughts();
  const Mask& known_mask_of_thoughts();
  Step next(Step from, char byte);
  Step follow(Step from, std::string_view bytes);
  std::string_view text_of(Token token) const;
  bool is_marker(Token token, std::span<const std::string_view> texts) const;
  bool may_follow(Token token);
  std::string_view think(Token token, std::string_view bytes);
  void end_thoughts();
  void forget_if_large();

  const std::shared_ptr<const TokenTrie> tokens_;  // shared with all answers of the model
  GrammarMatcher matcher_;
  GrammarMatcher::Place place_;
  bool drops_space_;                       // before the first token, where the vocabulary does
  std::optional<ThoughtsAhead> thoughts_;  // until they end
  int most_spaces_ = 0;                    // tokens of white space that may precede the text
  std::unordered_map<GrammarMatcher::Place, Mask> masks_;
  std::unordered_map<std::string, Mask> thought_masks_;  // by the key of where the thoughts are
  std::vector<Step> path_;                               // the walk's, by depth
};

}  // namespace tyto
