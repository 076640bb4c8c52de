#include "text/tokenizer/unigram.h"

#include <algorithm>
#include <limits>
#include <string>

#include "base/error.h"
#include "base/utf8.h"
#include "text/tokenizer/tokenizer_tables.h"

namespace tyto {

namespace {

constexpr size_t kMaxTrieBytes = size_t{1} << 28;

}  // namespace

PieceTrie::PieceTrie(const std::vector<std::string>& pieces, const std::vector<bool>& left_out,
                     const std::string& name) {
  std::vector<Token> sorted;
  size_t bytes = 0;
  for (size_t id = 0; id < pieces.size(); ++id) {
    if (pieces[id].empty() || left_out[id]) continue;
    if (pieces[id].size() > kMaxPieceBytes)
      fail_unsupported(name, "piece {} is {} bytes long; at most {} are supported", id,
                       pieces[id].size(), kMaxPieceBytes);
    bytes += pieces[id].size();
    sorted.push_back(static_cast<Token>(id));
  }
  if (bytes > kMaxTrieBytes)
    fail_unsupported(name, "{} bytes of pieces are more than the {} that are supported", bytes,
                     kMaxTrieBytes);
  const auto piece = [&](size_t i) -> const std::string& {
    return pieces[static_cast<size_t>(sorted[i])];
  };
  // Bytes as unsigned numbers, which is how std::string compares.
  std::ranges::sort(sorted, [&](Token a, Token b) {
    const int order = pieces[static_cast<size_t>(a)].compare(pieces[static_cast<size_t>(b)]);
    return order != 0 ? order < 0 : a < b;
  });
  // Breadth first: each node stands for a range of the sorted pieces that agree up to its depth.
  struct Range {
    size_t begin, end, depth;
  };
  std::vector<Range> ranges = {{0, sorted.size(), 0}};
  nodes_.emplace_back();
  for (size_t at = 0; at < ranges.size(); ++at) {
    auto [begin, end, depth] = ranges[at];
    for (; begin < end && piece(begin).size() == depth; ++begin)
      if (nodes_[at].token < 0) nodes_[at].token = sorted[begin];
    nodes_[at].first_child = static_cast<uint32_t>(nodes_.size());
    while (begin < end) {
      const char byte = piece(begin)[depth];
      size_t last = begin;
      while (last < end && piece(last)[depth] == byte) ++last;
      nodes_.push_back({.byte = static_cast<unsigned char>(byte)});
      ranges.push_back({begin, last, depth + 1});
      ++nodes_[at].children;
      begin = last;
    }
  }
  for (uint32_t i = 0; i < nodes_[0].children; ++i)
    roots_[nodes_[nodes_[0].first_child + i].byte] = nodes_[0].first_child + i;
}

uint32_t PieceTrie::next(uint32_t node, char byte) const {
  const auto wanted = static_cast<unsigned char>(byte);
  if (node == 0) return roots_[wanted];
  const Node& from = nodes_[node];
  const auto first = nodes_.begin() + from.first_child;
  const auto last = first + from.children;
  const auto found =
      std::partition_point(first, last, [&](const Node& child) { return child.byte < wanted; });
  if (found == last || found->byte != wanted) return kNone;
  return static_cast<uint32_t>(found - nodes_.begin());
}

PieceTrie::Match PieceTrie::longest(std::string_view text) const {
  Match longest;
  uint32_t node = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    node = next(node, text[i]);
    if (node == kNone) break;
    if (token(node) >= 0) longest = {token(node), i + 1};
  }
  return longest;
}

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
