// From a piece's text to its id. One flat table of ids over the vocabulary's own strings: four
// bytes a slot, so that 128k pieces cost about a megabyte.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace tyto {

class PieceIndex {
 public:
  PieceIndex() = default;
  // Keeps a reference: `pieces` must outlive the index and not change. Pieces that occur twice are
  // found under their lowest id; empty ones are not found.
  explicit PieceIndex(const std::vector<std::string>& pieces);
  // The same without the ids marked in `left_out` ([pieces]).
  PieceIndex(const std::vector<std::string>& pieces, const std::vector<bool>& left_out);

  Token find(std::string_view text) const;  // -1: none

 private:
  size_t slot_of(std::string_view text) const;

  const std::vector<std::string>* pieces_ = nullptr;
  std::vector<Token> slots_;  // a power of two; -1: free
};

}  // namespace tyto
