// SentencePiece's unigram model: of all ways to cut a text into pieces the one whose scores (log
// probabilities) have the greatest sum.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/bpe.h"
#include "text/tokenizer/vocabulary.h"

namespace tyto {

// The pieces of a vocabulary as a tree of bytes: all pieces that a text begins with, in one walk.

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
    uint32_t begin = 0;  // where its last piece begins
    Token token = -1;
  };
  void reach(size_t place, double score, size_t begin, Token token);

  const PieceTrie& pieces_;
  const std::vector<float>& scores_;
  double unknown_;
  std::vector<Best> best_;  // [text + 1]
};

// BERT's WordPiece: a word is cut from the left, always the longest piece first.

// `pieces` begin with U+2581 where a word does, and go on with one where they do not.
// Appends the tokens of the word; false, and nothing is appended: it cannot be put together.
bool append_word_pieces(const PieceTrie& pieces, std::string_view word, std::vector<Token>& out);

// What BERT does to a text before it looks for words.
struct BertText {
  bool clean_controls = true;
  bool space_ideographs = true;
  bool strip_accents = true;
  bool lower_case = true;
};
std::vector<Normalizer> bert_normalizers(const BertText& text);

}  // namespace tyto
