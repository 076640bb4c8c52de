#include "text/grammar/constraint.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace tyto {
namespace {

constexpr size_t kMaxKeptBytes = 32 << 20;  // of places and masks that are kept
constexpr size_t kMostThoughtMasks = 32;
constexpr int kMostSpaces = 4;  // tokens of white space between thoughts and the answer

bool is_in(std::span<const uint64_t> bits, Token token) {
  const auto id = static_cast<size_t>(token);
  return (bits[id / 64] >> (id % 64) & 1) != 0;
}

}  // namespace

Constraint::Constraint(std::shared_ptr<const Grammar> grammar,
                       std::shared_ptr<const TokenTrie> tokens, AnswerPlace begin)
    : tokens_(std::move(tokens)),
      matcher_(std::move(grammar)),
      place_(matcher_.start()),
      drops_space_(tokens_->drops_first_space() && !begin.continues_text),
      thoughts_(std::move(begin.thoughts)),
      path_(tokens_->depth() + 1) {}

bool Constraint::is_complete() const {
  const bool is_thinking = thoughts_ && !thoughts_->stream.may_answer();
  return !is_thinking && matcher_.may_end(place_);
}

std::span<const uint64_t> Constraint::allowed() {
  forget_if_large();
  matcher_.allow_work();
  if (thoughts_) return known_mask_of_thoughts();
  const bool is_special = drops_space_ || most_spaces_ > 0;  // a mask of no place: once only
  if (is_special) return masks_[GrammarMatcher::kNowhere] = mask();
  const auto known = masks_.find(place_);
  return known != masks_.end() ? known->second : masks_[place_] = mask();
}

// The bit behind the last token's is for nodes without one, which need not be asked for then.
Constraint::Mask Constraint::mask() {
  Mask bits(tokens_->vocabulary_size() / 64 + 1);
  const auto allow = [&](size_t id) { bits[id / 64] |= uint64_t{1} << (id % 64); };
  const std::span<const TokenTrie::Node> nodes = tokens_->nodes();
  path_[0] = {place_, most_spaces_ > 0};
  for (uint32_t i = 0; i < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    const bool is_dropped = drops_space_ && node.depth == 0 && node.byte == ' ';
    const Step step = is_dropped ? path_[0] : next(path_[node.depth], static_cast<char>(node.byte));
    if (step.place == GrammarMatcher::kNowhere) {
      i = node.end;
      continue;
    }
    path_[node.depth + 1] = step;
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

// White space that the grammar knows is the answer's.
Constraint::Step Constraint::next(Step from, char byte) {
  const GrammarMatcher::Place place = matcher_.next(from.place, static_cast<uint8_t>(byte));
  if (place != GrammarMatcher::kNowhere) return {place, false};
  const bool is_space = byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n';
  return from.skips_space && is_space ? from : Step{GrammarMatcher::kNowhere, false};
}

const Constraint::Mask& Constraint::known_mask_of_thoughts() {
  if (thought_masks_.size() > kMostThoughtMasks) thought_masks_.clear();
  const std::string key = thoughts_->stream.key();
  const auto known = thought_masks_.find(key);
  return known != thought_masks_.end() ? known->second : thought_masks_[key] = mask_of_thoughts();
}

Constraint::Mask Constraint::mask_of_thoughts() {
  Mask bits(tokens_->vocabulary_size() / 64 + 1);
  const auto allow = [&](Token token) {
    bits[static_cast<size_t>(token) / 64] |= uint64_t{1} << (token % 64);
  };
  const auto next_markers = thoughts_->stream.next_markers();
  if (next_markers.empty()) {
    for (Token token = 0; static_cast<size_t>(token) < tokens_->vocabulary_size(); ++token)
      if (may_follow(token)) allow(token);
    for (const Token end : tokens_->ends_of_text())
      bits[static_cast<size_t>(end) / 64] &= ~(uint64_t{1} << (end % 64));
    return bits;
  }
  if (thoughts_->stream.may_answer()) bits = mask();
  for (const ThoughtMarker& marker : thoughts_->markers)
    if (is_marker(marker.token, next_markers)) allow(marker.token);
  return bits;
}

// The token's text; a special token that is a marker of thoughts has one as well.
std::string_view Constraint::text_of(Token token) const {
  if (thoughts_)
    for (const ThoughtMarker& marker : thoughts_->markers)
      if (marker.token == token) return marker.text;
  return tokens_->bytes_of(token);
}

bool Constraint::is_marker(Token token, std::span<const std::string_view> texts) const {
  return std::ranges::find(texts, text_of(token)) != texts.end();
}

// Thoughts end with a marker, and markers with '>': only behind one a token can begin the answer.
bool Constraint::may_follow(Token token) {
  const std::string_view bytes = text_of(token);
  if (bytes.find('>') >= bytes.size() - std::min<size_t>(bytes.size(), 1)) return true;
  ReasoningStream stream = thoughts_->stream;
  size_t at = 0;
  while (at < bytes.size() && !stream.answers()) stream.push(bytes.substr(at++, 1));
  return follow({place_, stream.skips_space()}, bytes.substr(at)).place != GrammarMatcher::kNowhere;
}

Constraint::Step Constraint::follow(Step from, std::string_view bytes) {
  for (const char byte : bytes) from = next(from, byte);
  return from;
}

void Constraint::accept(Token token) {
  const std::string text(text_of(token));  // which may be the thoughts'
  std::string_view bytes = text;
  if (bytes.empty()) return;  // an end of text, after which a caller may go on
  matcher_.allow_work();
  if (std::exchange(drops_space_, false) && bytes.starts_with(' ')) bytes.remove_prefix(1);
  if (thoughts_) bytes = think(token, bytes);
  if (bytes.empty()) return;
  const Step step = follow({place_, most_spaces_ > 0}, bytes);
  place_ = step.place;
  most_spaces_ = step.skips_space ? most_spaces_ - 1 : 0;
  TYTO_ASSERT(place_ != GrammarMatcher::kNowhere);
}

// Returns the part of the bytes that belongs to the answer.
std::string_view Constraint::think(Token token, std::string_view bytes) {
  ReasoningStream& stream = thoughts_->stream;
  if (stream.may_answer()) {
    // A grammar may describe thoughts itself.
    const bool is_text = follow({place_, false}, bytes).place != GrammarMatcher::kNowhere;
    if (is_text || !is_marker(token, stream.next_markers())) {
      end_thoughts();
      return bytes;
    }
  }
  size_t at = 0;
  while (at < bytes.size() && !stream.answers()) stream.push(bytes.substr(at++, 1));
  if (!stream.answers()) return {};
  most_spaces_ = stream.skips_space() ? kMostSpaces : 0;
  end_thoughts();
  return bytes.substr(at);
}

void Constraint::end_thoughts() {
  thoughts_.reset();
  thought_masks_.clear();
}

void Constraint::forget_if_large() {
  const size_t mask_bytes = tokens_->vocabulary_size() / 8;
  if (matcher_.bytes() + masks_.size() * mask_bytes < kMaxKeptBytes) return;
  masks_.clear();
  place_ = matcher_.forget_but(place_);
}

}  // namespace tyto
