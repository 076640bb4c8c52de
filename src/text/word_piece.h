// BERT's WordPiece: a word is cut from the left, always the longest piece first.
#pragma once

#include <string_view>
#include <vector>

#include "text/piece_trie.h"

namespace tyto {

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
