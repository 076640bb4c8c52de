#include "text/grammar/constraint.h"

#include <utility>

#include "base/error.h"

namespace tyto {
namespace {

constexpr size_t kMaxBytes = 32 << 20;  // of places and masks that are kept

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

Constraint::Mask Constraint::mask() {
  Mask bits((tokens_->vocabulary_size() + 63) / 64);
  const auto allow = [&](Token token) {
    const auto id = static_cast<size_t>(token);
    bits[id / 64] |= uint64_t{1} << (id % 64);
  };
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
    for (const Token token : tokens_->tokens_at(i)) allow(token);
    ++i;
  }
  if (is_complete())
    for (const Token token : tokens_->ends_of_text()) allow(token);
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
