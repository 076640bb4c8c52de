// What a grammar leaves of the vocabulary, token by token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "text/grammar/grammar.h"
#include "text/reasoning.h"
#include "text/tokenizer/tokenizer.h"

namespace tyto {

// The tokens of a vocabulary by their bytes, so that one walk finds all that a grammar allows.

// Immutable. Special tokens are no text and not in it.
class TokenTrie {
 public:
  explicit TokenTrie(const Tokenizer& tokenizer);

  // Nodes in the order in which a walk meets them, parents first; the root, which has no byte, is
  // not among them.
  struct Node {
    uint32_t end = 0;         // the first node that is not below this one
    uint32_t token = 0;       // vocabulary_size(): none, it only leads to longer ones
    uint32_t depth : 24 = 0;  // 0: below the root
    uint32_t byte : 8 = 0;
  };
  std::span<const Node> nodes() const { return nodes_; }
  // Tokens of the same bytes as one that has a node.
  struct Twin {
    Token token = 0;
    Token same_as = 0;
  };
  std::span<const Twin> twins() const { return twins_; }
  size_t depth() const { return depth_; }  // bytes of the longest token

  size_t vocabulary_size() const { return begins_.size() - 1; }
  // Empty for a token that is not in the trie.
  std::string_view bytes_of(Token token) const;
  std::span<const Token> ends_of_text() const { return ends_of_text_; }

  // The vocabulary writes a text with a space before it, which is not the text's.
  bool drops_first_space() const { return drops_first_space_; }

 private:
  void add_nodes(std::span<const Token> sorted);

  std::vector<Node> nodes_;
  std::vector<Twin> twins_;
  std::string bytes_;
  std::vector<uint32_t> begins_;  // [vocab + 1], in bytes_
  std::vector<Token> ends_of_text_;
  size_t depth_ = 0;
  bool drops_first_space_ = false;
};

// Follows a text through a grammar, all ways at once. Where it may be is a Place; places are
// numbered as they are met, and what a byte leads to is worked out once, so that a text inside a
// string costs a table look-up per byte.

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

  size_t bytes() const;          // memory in use
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
