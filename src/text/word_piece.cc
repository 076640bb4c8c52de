#include "text/word_piece.h"

#include <string>

#include "text/tokenizer_tables.h"

namespace tyto {

bool append_word_pieces(const PieceTrie& pieces, std::string_view word, std::vector<Token>& out) {
  const size_t before = out.size();
  const std::string marked = std::string(kSpaceMark).append(word);
  std::string_view rest = marked;
  while (!rest.empty()) {
    const PieceTrie::Match match = pieces.longest(rest);
    if (match.token < 0) {
      out.resize(before);
      return false;
    }
    out.push_back(match.token);
    rest.remove_prefix(match.bytes);
  }
  return true;
}

std::vector<Normalizer> bert_normalizers(const BertText& text) {
  std::vector<Normalizer> steps;
  if (text.clean_controls) steps.push_back(Normalizer::clean_controls);
  if (text.space_ideographs) steps.push_back(Normalizer::space_ideographs);
  if (text.strip_accents) steps.insert(steps.end(), {Normalizer::nfd, Normalizer::strip_accents});
  if (text.lower_case) steps.push_back(Normalizer::lower_case);
  return steps;
}

}  // namespace tyto
