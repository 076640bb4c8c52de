// A checked vocabulary and the look-up tables over it: the inside of a Tokenizer.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/piece_index.h"
#include "text/split_pattern.h"
#include "text/vocabulary.h"

namespace tyto {

inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581, SentencePiece's space

struct TokenizerTables {
  TokenizerTables(Vocabulary from, const std::string& name);
  TokenizerTables(const TokenizerTables&) = delete;  // the tables refer to the vocabulary
  TokenizerTables& operator=(const TokenizerTables&) = delete;

  Vocabulary vocabulary;
  bool byte_level = false;
  // No piece has a space after something else, as SentencePiece trains them: then no merge crosses
  // the beginning of a word, and words may be merged one by one with the same result.
  bool words_stand_alone = false;
  std::vector<bool> added;    // [vocab]
  std::vector<bool> special;  // [vocab]
  PieceIndex all_pieces;
  PieceIndex text_pieces;  // without control and byte tokens, which text never becomes
  MergeTable merges;
  std::array<Token, 256> byte_token{};  // -1: none
  std::vector<SplitPattern> patterns;
  AddedTokenMatcher added_tokens;
  AddedTokenMatcher plain_added_tokens;  // without special ones

 private:
  void find_byte_tokens(const std::string& name);
};

}  // namespace tyto
