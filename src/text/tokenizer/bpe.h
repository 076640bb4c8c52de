// Byte-pair merging: a word's symbols are joined pair by pair, always the pair of lowest rank first
// and the leftmost of equals, until no pair has a rule.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer/vocabulary.h"

namespace tyto {

// GPT-2's byte-level alphabet: each of the 256 bytes written as one printable code point, so that a
// vocabulary of byte strings can be stored as text. Printable Latin-1 stands for itself, the other
// 68 bytes become U+0100..U+0143 in order.

char32_t byte_level_code_point(unsigned char byte);

std::string to_byte_level(std::string_view bytes);

// The bytes a stored piece stands for. Code points outside the alphabet stand for themselves, as do
// bytes that are not UTF-8.
std::string from_byte_level(std::string_view piece);

// From a piece's text to its id. One flat table of ids over the vocabulary's own strings: four
// bytes a slot, so that 128k pieces cost about a megabyte.

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

struct Merge {
  static constexpr uint32_t kNever = std::numeric_limits<uint32_t>::max();
  uint32_t rank = kNever;
  Token result = -1;
};

// From a pair of symbols to its merge. Flat, sixteen bytes a slot.
class MergeTable {
 public:
  MergeTable() : MergeTable(0) {}
  explicit MergeTable(size_t merges);  // room for `merges`; more must not be added

  void add(Token left, Token right, Merge merge);  // the first rule for a pair wins
  Merge find(Token left, Token right) const {      // rank kNever: no rule
    return slots_[slot_of(left, right)].merge;
  }

 private:
  struct Slot {
    uint64_t key = kFree;
    Merge merge;
  };
  // Both tokens -1: symbols that nothing merges with, so that looking them up finds no rule.
  static constexpr uint64_t kFree = std::numeric_limits<uint64_t>::max();

  static uint64_t key_of(Token left, Token right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  size_t slot_of(Token left, Token right) const;

  std::vector<Slot> slots_;  // a power of two, never full
};

// Rules by rank, as the vocabulary lists them. Merges that make a token marked in `left_out` (as
// control tokens are) do not take part.
MergeTable ranked_merges(const Vocabulary& vocabulary, const std::vector<bool>& left_out);

// SentencePiece's rule: any two neighbours may join into a piece, the one of highest score first.
// `index` finds the pieces that take part. Pieces of equal score have equal rank.
MergeTable scored_merges(const Vocabulary& vocabulary, const PieceIndex& index,
                         const std::string& name);

// A symbol of a word: its token (-1: none yet) and where its text ends in the word.
struct Symbol {
  Token token = -1;
  uint32_t end = 0;
};

// Merges a word in place. n log n for long words, so that one word of a megabyte is no trouble; the
// scratch space is kept from word to word.
class WordMerger {
 public:
  explicit WordMerger(const MergeTable& merges) : merges_(merges) {}
  void merge(std::vector<Symbol>& word);

 private:
  void merge_short(std::vector<Symbol>& word);
  void merge_long(std::vector<Symbol>& word);

  const MergeTable& merges_;
  std::vector<Merge> pair_;         // [word], rule of each symbol with its right neighbour
  std::vector<uint32_t> next_;      // [word], linked list over the symbols that remain
  std::vector<uint32_t> previous_;  // [word]
};

}  // namespace tyto
