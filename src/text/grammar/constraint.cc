#include "text/grammar/constraint.h"

#include <utility>

#include "base/error.h"

namespace tyto {
namespace {

constexpr size_t kMaxBytes = 32 << 20;  // of places and masks that are kept

bool is_in(std::span<const uint64_t> bits, Token token) {
  const auto id = static_cast<size_t>(token);
  return (bits[id / 64] >> (id % 64) & 1) != 0;
}

}  // namespace

Constraint::Constraint(std::shared_ptr<const Grammar> grammar,
                       std::shared_ptr<const TokenTrie> tokens)
    : tokens_(std::move(tokens)),
      matcher_(std::move(grammar)),
      place_(matcher_.start()),
      drops_space_(tokens_->drops_first_space()),
      path_(tokens_->depth() + 1) {}

std::span<const uint64_t> Constraint::allowed() {
  forget_if_large();
  matcher_.allow_work();
  if (drops_space_) return masks_[GrammarMatcher::kNowhere] = mask();  // of no place: once only
  const auto known = masks_.find(place_);
  return known != masks_.end() ? known->second : masks_[place_] = mask();
}

// The bit behind the last token's is for nodes without one, which need not be asked for then.
Constraint::Mask Constraint::mask() {
  Mask bits(tokens_->vocabulary_size() / 64 + 1);
  const auto allow = [&](size_t id) { bits[id / 64] |= uint64_t{1} << (id % 64); };
  const std::span<const TokenTrie::Node> nodes = tokens_->nodes();
  path_[0] = place_;
  for (uint32_t i = 0; i < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    const bool is_dropped = drops_space_ && node.depth == 0 && node.byte == ' ';
    const GrammarMatcher::Place place =
        is_dropped ? place_ : matcher_.next(path_[node.depth], static_cast<uint8_t>(node.byte));
    if (place == GrammarMatcher::kNowhere) {
      i = node.end;
      continue;
    }
    path_[node.depth + 1] = place;
    allow(node.token);
    ++i;
  }
  for (const TokenTrie::Twin& twin : tokens_->twins())
    if (is_in(bits, twin.same_as)) allow(static_cast<size_t>(twin.token));
  if (is_complete())
    for (const Token token : tokens_->ends_of_text()) allow(static_cast<size_t>(token));
  bits.back() &= (uint64_t{1} << (tokens_->vocabulary_size() % 64)) - 1;
  return bits;
}

void Constraint::accept(Token token) {
  std::string_view bytes = tokens_->bytes_of(token);
  if (bytes.empty()) return;  // an end of text, after which a caller may go on
  if (std::exchange(drops_space_, false) && bytes.starts_with(' ')) bytes.remove_prefix(1);
  matcher_.allow_work();
  for (const char byte : bytes) place_ = matcher_.next(place_, static_cast<uint8_t>(byte));
  TYTO_ASSERT(place_ != GrammarMatcher::kNowhere);
}

void Constraint::forget_if_large() {
  const size_t mask_bytes = tokens_->vocabulary_size() / 8;
  if (matcher_.bytes() + masks_.size() * mask_bytes < kMaxBytes) return;
  masks_.clear();
  place_ = matcher_.forget_but(place_);
}

}  // namespace tyto
