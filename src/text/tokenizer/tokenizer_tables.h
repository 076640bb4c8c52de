// A checked vocabulary and the look-up tables over it: the inside of a Tokenizer.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/bpe.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/unigram.h"
#include "text/tokenizer/vocabulary.h"

namespace tyto {

inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581, SentencePiece's space

struct TokenizerTables {
  TokenizerTables(Vocabulary from, const std::string& name);
  TokenizerTables(const TokenizerTables&) = delete;  // the tables refer to the vocabulary
  TokenizerTables& operator=(const TokenizerTables&) = delete;

  Vocabulary vocabulary;
  bool byte_level = false;    // pieces are written in the byte-level alphabet
  bool marks_spaces = false;  // U+2581 for spaces in the text
  // No piece has a space after something else, as SentencePiece trains them: then no merge crosses
  // the beginning of a word, and words may be merged one by one with the same result.
  bool words_stand_alone = false;
  std::vector<bool> added;    // [vocab]
  std::vector<bool> special;  // [vocab]
  PieceIndex all_pieces;
  PieceIndex text_pieces;  // without control and byte tokens, which text never becomes
  MergeTable merges;
  PieceTrie trie;            // text_pieces as a trie, where pieces are found from the left
  double unknown_score = 0;  // unigram
  TextNormalizer normalizer;
  std::array<Token, 256> byte_token{};  // -1: none
  std::vector<SplitPattern> patterns;
  std::vector<AddedToken> as_written_added;  // those that are found before normalizers
  AddedTokenMatcher added_tokens;
  AddedTokenMatcher plain_added_tokens;  // without special ones
  // Those that are looked for in normalised text, with their texts normalised too.
  std::vector<AddedToken> normalized_added;
  AddedTokenMatcher normalized_added_tokens;

 private:
  void find_added_tokens();
  void find_byte_tokens(const std::string& name);
};

}  // namespace tyto
