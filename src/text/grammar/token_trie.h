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

}  // namespace tyto
