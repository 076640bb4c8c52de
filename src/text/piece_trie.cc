#include "text/piece_trie.h"

#include <algorithm>

#include "base/error.h"

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

}  // namespace tyto
