#include "text/unigram.h"

#include <algorithm>
#include <limits>

#include "base/utf8.h"

namespace tyto {

double unknown_score(const Vocabulary& vocabulary, const std::vector<bool>& left_out) {
  double lowest = std::numeric_limits<double>::max();
  for (size_t id = 0; id < vocabulary.scores.size(); ++id)
    if (!left_out[id]) lowest = std::min(lowest, double{vocabulary.scores[id]});
  return (lowest == std::numeric_limits<double>::max() ? 0.0 : lowest) - kUnknownPenalty;
}

void UnigramCutter::reach(size_t place, double score, size_t begin, Token token) {
  if (score > best_[place].score) best_[place] = {score, static_cast<uint32_t>(begin), token};
}

void UnigramCutter::cut(std::string_view text, std::vector<Symbol>& out) {
  out.clear();
  best_.assign(text.size() + 1, {-std::numeric_limits<double>::infinity(), 0, -1});
  best_[0].score = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t character = utf8_head(text.substr(begin)).bytes;
    const double score = best_[begin].score;
    bool is_piece = false;
    uint32_t node = 0;
    for (size_t end = begin; end < text.size();) {
      node = pieces_.next(node, text[end++]);
      if (node == PieceTrie::kNone) break;
      const Token token = pieces_.token(node);
      if (token < 0) continue;
      is_piece = is_piece || end - begin == character;
      reach(end, score + double{scores_[static_cast<size_t>(token)]}, begin, token);
    }
    if (!is_piece) reach(begin + character, score + unknown_, begin, -1);
    begin += character;
  }
  for (size_t end = text.size(); end > 0; end = best_[end].begin) {
    const Token token = best_[end].token;
    // Walked from the end: the symbol before is the one that follows in the text.
    if (token < 0 && !out.empty() && out.back().token < 0) continue;
    out.push_back({token, static_cast<uint32_t>(end)});
  }
  std::reverse(out.begin(), out.end());
}

}  // namespace tyto
