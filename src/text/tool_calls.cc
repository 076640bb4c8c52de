#include "text/tool_calls.h"

#include <algorithm>
#include <utility>

namespace tyto {
namespace {

constexpr std::string_view kSpacesAround = " \t\r\n";
constexpr std::string_view kBeforeCall = " \t\r\n[";       // calls may stand in an array,
constexpr std::string_view kBetweenCalls = " \t\r\n[,;]";  // or behind each other
constexpr size_t kMaxHeadBytes = 64 << 10;  // of a call whose arguments have not begun

bool is_in(std::string_view set, char c) {
  return set.find(c) != set.npos;
}

// Models confuse the two.
bool is_arguments(std::string_view key) {
  return key == "arguments" || key == "parameters";
}

// "call_" and 24 letters or digits, as clients know them from OpenAI; SplitMix64 makes them.
std::string call_id(uint64_t seed, uint64_t index) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  constexpr uint64_t kStep = 0x9E3779B97F4A7C15;
  std::string id = "call_";
  uint64_t state = seed + (index + 1) * kStep * 24;
  for (int i = 0; i < 24; ++i) {
    uint64_t bits = state += kStep;
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9;
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB;
    id += kLetters[(bits ^ (bits >> 31)) % kLetters.size()];
  }
  return id;
}

}  // namespace

bool ToolCallReader::push(char c) {
  const bool is_outermost = scanner_.depth() == 1;
  const bool was_in_string = scanner_.in_string();
  if (!scanner_.push(c)) return false;
  if (is_outermost && was_in_string && !scanner_.in_string()) end_string();
  if (is_outermost && was_in_string && scanner_.in_string()) string_ += c;
  const bool opens_object = is_outermost && scanner_.depth() == 2 && c == '{';
  if (opens_object && is_arguments(key_) && !has_arguments_) has_arguments_ = in_arguments_ = true;
  if (in_arguments_) arguments_ += c;
  if (scanner_.depth() == 1) in_arguments_ = false;
  return true;
}

void ToolCallReader::end_string() {
  if (scanner_.in_key()) {
    key_ = string_;
    names_arguments_ = names_arguments_ || is_arguments(key_);
  } else if (key_ == "name" && name_.empty()) {
    name_ = string_;
  }
  string_.clear();
}

std::string ToolCallReader::take_arguments() {
  return std::exchange(arguments_, {});
}

ToolCallStream::ToolCallStream(ToolFormat format, const std::vector<Tool>& tools, uint64_t seed,
                               bool parallel)
    : syntax_(tool_syntax(format)),
      seed_(seed),
      parallel_(parallel),
      state_(syntax_.opens_answers ? State::lead : State::content) {
  for (const Tool& tool : tools) names_.push_back(tool.name);
}

AnswerDelta ToolCallStream::push(std::string_view text) {
  AnswerDelta delta;
  if (syntax_.format == ToolFormat::none) return {std::string(text), {}};
  std::string rest(text);
  for (size_t at = 0; at < rest.size() && !is_over();) {
    if (take(rest[at], delta)) {
      ++at;
    } else {
      rest = give_up(delta) + rest.substr(at);
      at = 0;
    }
  }
  return delta;
}

AnswerDelta ToolCallStream::finish() {
  AnswerDelta delta;
  if (!is_over() && !pending_belongs_to_call()) say(pending_, delta);
  pending_.clear();
  return delta;
}

// At the end of an answer: behind a call there may be white space, and while it is not closed
// also separators and a part of `close`.
bool ToolCallStream::pending_belongs_to_call() const {
  if (state_ == State::call) return has_begun_;
  if (!is_after_call_ || certain_ > 0) return false;
  if (state_ == State::lead) return syntax_.close.starts_with(marker_);
  return pending_.find_first_not_of(kSpacesAround) == pending_.npos;
}

bool ToolCallStream::take(char c, AnswerDelta& delta) {
  if (state_ == State::content) return take_content(c, delta);
  if (state_ == State::lead) return take_lead(c);
  return take_call(c, delta);
}

// Holds white space back, and what may become a marker behind it. A marker's first character is
// nowhere else in it, so that another one can only begin where this one ends.
bool ToolCallStream::take_content(char c, AnswerDelta& delta) {
  const bool is_space = is_in(kSpacesAround, c);
  const bool is_held = c == syntax_.open[marker_.size()] || (is_space && marker_.empty());
  if (!is_held) {
    say(pending_, delta);
    pending_.clear();
    marker_.clear();
    if (c != syntax_.open.front() && !is_space) {
      say({&c, 1}, delta);
      return true;
    }
  }
  pending_ += c;
  if (!is_space) marker_ += c;
  if (marker_ == syntax_.open) {
    marker_.clear();
    certain_ = pending_.size();
    state_ = State::lead;
  }
  return true;
}

bool ToolCallStream::take_lead(char c) {
  if (!marker_.empty() || c == syntax_.open.front()) return take_marker(c);
  if (c == '{') {
    pending_ += c;
    if (certain_ == 0) certain_ = pending_.size();
    reader_ = {};
    has_begun_ = false;
    state_ = State::call;
    return reader_.push(c);
  }
  if (!is_in(is_after_call_ ? kBetweenCalls : kBeforeCall, c)) return false;
  pending_ += c;
  return true;
}

bool ToolCallStream::take_marker(char c) {
  const std::string marker = marker_ + c;
  const bool may_close = is_after_call_ && certain_ == 0;
  const bool closes = may_close && syntax_.close.starts_with(marker);
  if (!closes && !syntax_.open.starts_with(marker)) return false;
  marker_ = marker;
  pending_ += c;
  if (closes && marker == syntax_.close) {
    pending_.clear();
    marker_.clear();
    state_ = State::content;
  } else if (marker == syntax_.open) {
    certain_ = pending_.size();
    marker_.clear();
  }
  return true;
}

bool ToolCallStream::take_call(char c, AnswerDelta& delta) {
  if (!has_begun_ && pending_.size() >= kMaxHeadBytes) return false;
  const bool is_syntax = !has_begun_ || reader_.is_past_arguments();
  if (!reader_.push(c)) return false;
  const bool is_known = !reader_.name().empty();
  if (is_known && !knows(reader_.name())) return false;
  if (reader_.is_complete() && !reader_.is_call()) return false;
  if (is_syntax) pending_ += c;
  if (!has_begun_ && is_known && (reader_.has_arguments() || reader_.is_complete()))
    begin_call(delta);
  if (has_begun_) add_arguments(reader_.take_arguments(), delta);
  if (reader_.is_complete()) {
    has_whole_call_ = true;
    end_call();
  }
  return true;
}

void ToolCallStream::begin_call(AnswerDelta& delta) {
  delta.calls.push_back({.index = calls_, .id = call_id(seed_, calls_), .name = reader_.name()});
  if (!reader_.has_arguments()) delta.calls.back().arguments = "{}";
  ++calls_;
  has_begun_ = is_after_call_ = true;
  pending_.clear();
  certain_ = 0;
}

void ToolCallStream::add_arguments(std::string_view piece, AnswerDelta& delta) {
  if (piece.empty()) return;
  const size_t index = calls_ - 1;
  if (delta.calls.empty() || delta.calls.back().index != index)
    delta.calls.push_back({.index = index});
  delta.calls.back().arguments += piece;
}

void ToolCallStream::end_call() {
  pending_.clear();
  certain_ = 0;
  marker_.clear();
  state_ = State::lead;
}

// No call comes of what was taken: gives back what is to be looked at again.
std::string ToolCallStream::give_up(AnswerDelta& delta) {
  std::string again = pending_.substr(certain_);
  const bool has_all_but_the_end =
      state_ == State::call && has_begun_ && reader_.is_past_arguments();
  has_whole_call_ = has_whole_call_ || has_all_but_the_end;
  say(std::string_view(pending_).substr(0, certain_), delta);
  end_call();
  if (!has_all_but_the_end) state_ = State::content;
  return again;
}

void ToolCallStream::say(std::string_view text, AnswerDelta& delta) {
  if (text.empty()) return;
  delta.content += text;
  is_after_call_ = false;
}

bool ToolCallStream::knows(const std::string& name) const {
  return std::find(names_.begin(), names_.end(), name) != names_.end();
}

}  // namespace tyto
