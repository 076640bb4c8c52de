// The tokens of a vocabulary by their bytes, so that one walk finds all that a grammar allows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace tyto {

// Immutable. Special tokens are no text and not in it.
class TokenTrie {
 public:
  explicit TokenTrie(const Tokenizer& tokenizer);

  // Nodes in the order in which a walk meets them, parents first; the root, which has no byte, is
  // not among them.
  struct Node {
    uint32_t end = 0;          // the first node that is not below this one
    uint32_t first_token = 0;  // in tokens(); those of a node end where the next one's begin
    uint32_t depth : 24 = 0;   // 0: below the root
    uint32_t byte : 8 = 0;
  };
  std::span<const Node> nodes() const { return std::span(nodes_).first(nodes_.size() - 1); }
  std::span<const Token> tokens_at(uint32_t node) const {
    const uint32_t first = nodes_[node].first_token;
    return std::span(tokens_).subspan(first, nodes_[node + 1].first_token - first);
  }
  size_t depth() const { return depth_; }  // bytes of the longest token

  size_t vocabulary_size() const { return begins_.size() - 1; }
  // Empty for a token that is not in the trie.
  std::string_view bytes_of(Token token) const;
  std::span<const Token> ends_of_text() const { return ends_of_text_; }

  // The vocabulary writes a text with a space before it, which is not the text's.
  bool drops_first_space() const { return drops_first_space_; }

 private:
  std::vector<Node> nodes_;  // and one behind the last
  std::vector<Token> tokens_;
  std::string bytes_;
  std::vector<uint32_t> begins_;  // [vocab + 1], in bytes_
  std::vector<Token> ends_of_text_;
  size_t depth_ = 0;
  bool drops_first_space_ = false;
};

}  // namespace tyto
