// The pieces of a vocabulary as a tree of bytes: all pieces that a text begins with, in one walk.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace tyto {

class PieceTrie {
 public:
  PieceTrie() = default;
  // Without the ids marked in `left_out` ([pieces]). Of pieces that occur twice the lowest id
  // counts; empty ones are not found. Walks are as long as the longest piece, so pieces longer than
  // `kMaxPieceBytes` are an Error that begins with `name`.
  PieceTrie(const std::vector<std::string>& pieces, const std::vector<bool>& left_out,
            const std::string& name);

  static constexpr size_t kMaxPieceBytes = 256;
  static constexpr uint32_t kNone = 0;  // no node is the root's child and the root

  // The node that follows `node` (0: the root) with this byte; kNone: no piece goes on so.
  uint32_t next(uint32_t node, char byte) const;
  Token token(uint32_t node) const { return nodes_[node].token; }  // -1: no piece ends here

  struct Match {
    Token token = -1;  // -1: none
    size_t bytes = 0;
  };
  Match longest(std::string_view text) const;  // that the text begins with

 private:
  struct Node {
    uint32_t first_child = 0;
    uint16_t children = 0;  // they lie one after another, by byte
    unsigned char byte = 0;
    Token token = -1;
  };
  std::vector<Node> nodes_;
  std::array<uint32_t, 256> roots_{};  // children of the root by byte, which are asked for most
};

}  // namespace tyto
