#include "text/added_tokens.h"

#include <algorithm>

#include "base/utf8.h"
#include "text/unicode.h"

namespace tyto {

namespace {

unsigned char byte_at(std::string_view text, size_t i) {
  return static_cast<unsigned char>(text[i]);
}

size_t skip_white_space(std::string_view text, size_t from) {
  while (from < text.size()) {
    const Utf8Head head = utf8_head(text.substr(from));
    if (head.kind != Utf8Head::Kind::valid || !is_white_space(head.code_point)) break;
    from += head.bytes;
  }
  return from;
}

// The beginning of the white space that ends at `to`, not before `from`.
size_t white_space_before(std::string_view text, size_t from, size_t to) {
  while (to > from) {
    size_t lead = to - 1;
    while (lead > from && to - lead < 3 && (byte_at(text, lead) & 0xC0) == 0x80) --lead;
    const Utf8Head head = utf8_head(text.substr(lead, to - lead));
    if (head.kind != Utf8Head::Kind::valid || head.bytes != to - lead ||
        !is_white_space(head.code_point))
      break;
    to = lead;
  }
  return to;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(const std::vector<AddedToken>& added, bool with_special) {
  for (const AddedToken& token : added)
    if (!token.text.empty() && (with_special || !token.special)) sorted_.push_back(&token);
  // Of two tokens with one text the first listed comes first, and the other is dropped.
  std::sort(sorted_.begin(), sorted_.end(), [](const AddedToken* a, const AddedToken* b) {
    return a->text != b->text ? a->text < b->text : a < b;
  });
  const auto same_text = [](const AddedToken* a, const AddedToken* b) {
    return a->text == b->text;
  };
  sorted_.erase(std::unique(sorted_.begin(), sorted_.end(), same_text), sorted_.end());
  first_.assign(257, static_cast<uint32_t>(sorted_.size()));
  for (size_t i = sorted_.size(); i-- > 0;)
    first_[byte_at(sorted_[i]->text, 0)] = static_cast<uint32_t>(i);
  for (size_t byte = 256; byte-- > 0;) first_[byte] = std::min(first_[byte], first_[byte + 1]);
}

// Narrows the sorted tokens byte by byte, as walking down a trie would.
const AddedToken* AddedTokenMatcher::longest_at(std::string_view text, size_t room) const {
  const unsigned char first = byte_at(text, 0);
  auto low = sorted_.begin() + first_[first];
  auto high = sorted_.begin() + first_[first + 1];
  const AddedToken* longest = nullptr;
  for (size_t depth = 1; low != high; ++depth) {
    if ((*low)->text.size() == depth) {
      if (!(*low)->special || depth <= room) longest = *low;
      ++low;
    }
    if (low == high || depth == text.size()) break;
    const unsigned char wanted = byte_at(text, depth);
    low = std::partition_point(
        low, high, [&](const AddedToken* t) { return byte_at(t->text, depth) < wanted; });
    high = std::partition_point(
        low, high, [&](const AddedToken* t) { return byte_at(t->text, depth) == wanted; });
  }
  return longest;
}

AddedTokenMatcher::Match AddedTokenMatcher::find(std::string_view text, size_t from,
                                                 std::span<const size_t> plain) const {
  if (sorted_.empty()) return {};
  auto next_plain = std::lower_bound(plain.begin(), plain.end(), from);
  for (size_t at = from; at < text.size(); ++at) {
    while (next_plain != plain.end() && *next_plain < at) ++next_plain;
    const size_t room = (next_plain == plain.end() ? text.size() : *next_plain) - at;
    const AddedToken* token = longest_at(text.substr(at), room);
    if (token == nullptr) continue;
    const size_t end = at + token->text.size();
    return {token, at, token->strip_left ? white_space_before(text, from, at) : at,
            token->strip_right ? skip_white_space(text, end) : end};
  }
  return {};
}

}  // namespace tyto
