#include "text/reasoning.h"

namespace tyto {
namespace {

constexpr std::string_view kOpen = "<think>";
constexpr std::string_view kClose = "</think>";
constexpr std::string_view kSpaces = " \t\r\n";

bool is_space(char c) {
  return kSpaces.find(c) != kSpaces.npos;
}

}  // namespace

ReasoningDelta ReasoningStream::push(std::string_view text) {
  ReasoningDelta delta;
  for (const char c : text) take(c, delta);
  return delta;
}

ReasoningDelta ReasoningStream::finish() {
  ReasoningDelta delta;
  if (state_ == State::begin) delta.content = pending_;
  if (state_ == State::thought && !marker_.empty()) think(delta);
  pending_.clear();
  return delta;
}

void ReasoningStream::take(char c, ReasoningDelta& delta) {
  if (state_ == State::begin) return take_begin(c, delta);
  if (state_ == State::thought) return take_thought(c, delta);
  if (state_ == State::between && is_space(c)) return;
  state_ = State::content;
  delta.content += c;
}

void ReasoningStream::take_begin(char c, ReasoningDelta& delta) {
  pending_ += c;
  if (marker_.empty() && is_space(c)) return;
  marker_ += c;
  if (marker_ != kOpen && kOpen.starts_with(marker_)) return;
  if (marker_ != kOpen) delta.content += pending_;
  state_ = marker_ == kOpen ? State::thought : State::content;
  pending_.clear();
  marker_.clear();
}

// A marker's first character is nowhere else in it: another one can only begin where this one ends.
void ReasoningStream::take_thought(char c, ReasoningDelta& delta) {
  const bool is_held = c == kClose[marker_.size()] || (marker_.empty() && is_space(c));
  if (!is_held) think(delta);
  pending_ += c;
  if (!is_space(c)) marker_ += c;
  if (marker_ == kClose) {
    state_ = State::between;
    pending_.clear();
    marker_.clear();
  } else if (!kClose.starts_with(marker_)) {
    think(delta);
  }
}

// What was held back is a thought, but for the white space before the first.
void ReasoningStream::think(ReasoningDelta& delta) {
  delta.reasoning += has_thought_ ? pending_ : marker_;
  has_thought_ = has_thought_ || !marker_.empty();
  pending_.clear();
  marker_.clear();
}

bool prompt_opens_reasoning(std::string_view prompt) {
  const size_t last = prompt.find_last_not_of(kSpaces);
  return last != prompt.npos && prompt.substr(0, last + 1).ends_with(kOpen);
}

}  // namespace tyto
