// SentencePiece's unigram model: of all ways to cut a text into pieces the one whose scores (log
// probabilities) have the greatest sum.
#pragma once

#include <string_view>
#include <vector>

#include "text/bpe.h"
#include "text/piece_trie.h"

namespace tyto {

// What a character that is no piece costs: so much more than the rarest piece, as SentencePiece has
// it.
constexpr double kUnknownPenalty = 10;

// The score of a character that is no piece. `left_out` ([vocab]) marks what is no text.
double unknown_score(const Vocabulary& vocabulary, const std::vector<bool>& left_out);

// Time linear in the text times the longest piece. The scratch space is kept from text to text.
class UnigramCutter {
 public:
  UnigramCutter(const PieceTrie& pieces, const std::vector<float>& scores, double unknown)
      : pieces_(pieces), scores_(scores), unknown_(unknown) {}

  // The pieces of valid UTF-8 in order; token -1: characters that are no piece, one symbol for all
  // that follow one another. Of two ways with the same sum the one whose last piece is longer.
  void cut(std::string_view text, std::vector<Symbol>& out);

 private:
  struct Best {  // way to a place in the text
    double score = 0;
    uint32_t begin = 0;  // of its last piece
    Token token = -1;
  };
  void reach(size_t place, double score, size_t begin, Token token);

  const PieceTrie& pieces_;
  const std::vector<float>& scores_;
  double unknown_;
  std::vector<Best> best_;  // [text + 1]
};

}  // namespace tyto
