#include "text/reasoning.h"

#include <algorithm>

namespace tyto {
namespace {

constexpr std::string_view kOpen = "<think>";
constexpr std::string_view kClose = "</think>";
constexpr std::string_view kSpaces = " \t\r\n";

bool is_space(char c) {
  return kSpaces.find(c) != kSpaces.npos;
}

// What stands behind the white space that a text begins with.
std::string_view without_spaces(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(kSpaces), text.size()));
}

}  // namespace

ReasoningDelta ReasoningStream::push(std::string_view text) {
  ReasoningDelta delta;
  for (const char c : text) take(c, delta);
  return delta;
}

ReasoningDelta ReasoningStream::finish() {
  ReasoningDelta delta;
  const bool is_spaces = without_spaces(pending_).empty();
  if (state_ == State::begin) delta.content = pending_;
  if (state_ == State::thought && !is_spaces) delta.reasoning = pending_;
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
  const std::string_view marker = without_spaces(pending_);
  if (kOpen.starts_with(marker) && marker != kOpen) return;
  if (marker == kOpen) {
    state_ = State::thought;
  } else {
    delta.content += pending_;
    state_ = State::content;
  }
  pending_.clear();
}

// A marker's first character is nowhere else in it: another one can only begin where this one ends.
void ReasoningStream::take_thought(char c, ReasoningDelta& delta) {
  const std::string_view marker = without_spaces(pending_);
  const bool goes_on = kClose[marker.size()] == c;
  if (goes_on && marker.size() + 1 == kClose.size()) {
    pending_.clear();
    state_ = State::between;
    return;
  }
  if (!goes_on && (!marker.empty() || !is_space(c))) {
    delta.reasoning += has_thought_ ? std::string_view(pending_) : marker;
    has_thought_ = has_thought_ || !marker.empty();
    pending_.clear();
  }
  if (c == kClose.front() || is_space(c) || goes_on) {
    pending_ += c;
  } else {
    delta.reasoning += c;
    has_thought_ = true;
  }
}

bool prompt_opens_reasoning(std::string_view prompt) {
  const size_t last = prompt.find_last_not_of(kSpaces);
  return last != prompt.npos && prompt.substr(0, last + 1).ends_with(kOpen);
}

}  // namespace tyto
