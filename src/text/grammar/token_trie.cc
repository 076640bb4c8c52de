#include "text/grammar/token_trie.h"

#include <algorithm>

#include "base/error.h"

namespace tyto {
namespace {

constexpr size_t kMaxTokenBytes = (1 << 24) - 1;  // a node's depth has 24 bits

size_t common_prefix(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

TokenTrie::TokenTrie(const Tokenizer& tokenizer) {
  drops_first_space_ = tokenizer.drops_first_space();
  std::vector<Token> tokens;
  begins_.push_back(0);
  for (Token token = 0; static_cast<size_t>(token) < tokenizer.size(); ++token) {
    if (tokenizer.is_eos(token)) ends_of_text_.push_back(token);
    const bool is_text = !tokenizer.is_eos(token) && !tokenizer.is_special(token);
    if (is_text) bytes_ += tokenizer.token_bytes(token);
    if (bytes_.size() - begins_.back() > kMaxTokenBytes || bytes_.size() > UINT32_MAX)
      fail_unsupported("vocabulary", "the token {} makes it too long for a grammar", token);
    begins_.push_back(static_cast<uint32_t>(bytes_.size()));
    if (begins_.end()[-1] > begins_.end()[-2]) tokens.push_back(token);
  }
  std::ranges::sort(tokens, [&](Token a, Token b) {
    const int order = bytes_of(a).compare(bytes_of(b));
    return order != 0 ? order < 0 : a < b;
  });
  add_nodes(tokens);
}

void TokenTrie::add_nodes(std::span<const Token> sorted) {
  std::vector<uint32_t> path;  // nodes of the token at hand
  std::string_view before;
  for (const Token token : sorted) {
    const std::string_view bytes = bytes_of(token);
    if (bytes == before) {
      twins_.push_back({token, static_cast<Token>(nodes_.back().token)});
      continue;
    }
    const size_t shared = common_prefix(before, bytes);
    for (; path.size() > shared; path.pop_back())
      nodes_[path.back()].end = static_cast<uint32_t>(nodes_.size());
    for (size_t depth = shared; depth < bytes.size(); ++depth) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({0, static_cast<uint32_t>(vocabulary_size()), static_cast<uint32_t>(depth),
                        static_cast<uint8_t>(bytes[depth])});
    }
    nodes_.back().token = static_cast<uint32_t>(token);
    depth_ = std::max(depth_, bytes.size());
    before = bytes;
  }
  for (const uint32_t node : path) nodes_[node].end = static_cast<uint32_t>(nodes_.size());
}

std::string_view TokenTrie::bytes_of(Token token) const {
  const auto id = static_cast<size_t>(token);
  if (token < 0 || id >= vocabulary_size()) return {};
  return std::string_view(bytes_).substr(begins_[id], begins_[id + 1] - begins_[id]);
}

}  // namespace tyto
