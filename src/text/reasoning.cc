#include "text/reasoning.h"

#include <algorithm>
#include <array>
#include <utility>

namespace tyto {
namespace {

constexpr std::string_view kOpen = "<think>";
constexpr std::string_view kClose = "</think>";
constexpr std::string_view kSpaces = " \t\r\n";

constexpr std::string_view kStart = "<|start|>";
constexpr std::string_view kChannel = "<|channel|>";
constexpr std::string_view kMessage = "<|message|>";
constexpr std::string_view kConstrain = "<|constrain|>";
constexpr std::string_view kEnd = "<|end|>";
constexpr std::string_view kReturn = "<|return|>";
constexpr std::string_view kCall = "<|call|>";

constexpr std::array kThinkMarkers = {kOpen, kClose};
constexpr std::array kHarmonyMarkers = {kStart, kChannel, kMessage, kConstrain,
                                        kEnd,   kReturn,  kCall};
constexpr std::array kThinkBegins = {kOpen};
constexpr std::array kHarmonyBegins = {kChannel, kStart};

constexpr std::string_view kTo = "to=";
constexpr size_t kLongestHeader = 256;  // what goes on longer is no header

bool is_blank(char c) {
  return kSpaces.find(c) != kSpaces.npos;
}

std::string_view without_spaces(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kSpaces), text.size()));
  return text.substr(0, text.find_last_not_of(kSpaces) + 1);
}

bool has_marker(std::span<const std::string_view> markers, std::string_view text) {
  return std::ranges::find(markers, text) != markers.end();
}

Token special_token(const Vocabulary& vocabulary, std::string_view text) {
  for (const AddedToken& token : vocabulary.added)
    if (token.special && token.text == text) return token.id;
  return -1;
}

// The word that begins behind the last `mark` of a header.
std::string_view word_behind(std::string_view header, std::string_view mark) {
  const size_t at = header.rfind(mark);
  if (at == header.npos) return {};
  header.remove_prefix(at + mark.size());
  header.remove_prefix(std::min(header.find_first_not_of(kSpaces), header.size()));
  return header.substr(0, header.find_first_of(" \t\r\n<"));
}

}  // namespace

ThinkStream::ThinkStream(std::string_view prompt)
    : state_(without_spaces(prompt).ends_with(kOpen) ? State::thought : State::begin) {}

void ThinkStream::push(char c, ReasoningDelta& delta) {
  if (state_ == State::begin) return take_begin(c, delta);
  if (state_ == State::thought) return take_thought(c, delta);
  if (state_ == State::between && is_blank(c)) return;
  state_ = State::content;
  delta.content += c;
}

void ThinkStream::finish(ReasoningDelta& delta) {
  if (state_ == State::begin) delta.content += pending_;
  if (state_ == State::thought && !marker_.empty()) think(delta);
  pending_.clear();
}

void ThinkStream::take_begin(char c, ReasoningDelta& delta) {
  pending_ += c;
  if (marker_.empty() && is_blank(c)) return;
  marker_ += c;
  if (marker_ != kOpen && kOpen.starts_with(marker_)) return;
  if (marker_ != kOpen) delta.content += pending_;
  state_ = marker_ == kOpen ? State::thought : State::content;
  pending_.clear();
  marker_.clear();
}

// A marker's first character is nowhere else in it: another one can only begin where this one ends.
void ThinkStream::take_thought(char c, ReasoningDelta& delta) {
  const bool is_held = c == kClose[marker_.size()] || (marker_.empty() && is_blank(c));
  if (!is_held) think(delta);
  pending_ += c;
  if (!is_blank(c)) marker_ += c;
  if (marker_ == kClose) {
    state_ = State::between;
    pending_.clear();
    marker_.clear();
  } else if (!kClose.starts_with(marker_)) {
    think(delta);
  }
}

// What was held back is a thought, but for the white space before the first.
void ThinkStream::think(ReasoningDelta& delta) {
  delta.reasoning += has_thought_ ? pending_ : marker_;
  has_thought_ = has_thought_ || !marker_.empty();
  pending_.clear();
  marker_.clear();
}

std::span<const std::string_view> ThinkStream::next_markers() const {
  if (state_ == State::begin) return kThinkBegins;
  return {};
}

std::string ThinkStream::key() const {
  return std::to_string(static_cast<int>(state_)) + marker_;
}

HarmonyStream::HarmonyStream(std::string_view prompt, bool only_final) : only_final_(only_final) {
  const size_t begin = prompt.rfind(kStart);
  if (begin == prompt.npos) return;
  ReasoningDelta shown;
  for (const char c : prompt.substr(begin)) push(c, shown);
  has_thought_ = has_said_ = is_new_ = false;
  if (state_ != State::header || header_.find(kChannel) != header_.npos) return;
  state_ = State::outside;  // the role is complete
  header_.clear();
}

// A marker's first character is nowhere else in it: another one can only begin where this one ends.
void HarmonyStream::push(char c, ReasoningDelta& delta) {
  const std::string longer = marker_ + c;
  const auto begins = [&](std::string_view marker) { return marker.starts_with(longer); };
  if (std::ranges::any_of(kHarmonyMarkers, begins)) {
    marker_ = longer;
    if (has_marker(kHarmonyMarkers, marker_)) take_marker(delta);
    return;
  }
  for (const char held : std::exchange(marker_, {})) take_text(held, delta);
  if (c == kStart.front())
    marker_ = c;
  else
    take_text(c, delta);
}

void HarmonyStream::finish(ReasoningDelta& delta) {
  for (const char held : std::exchange(marker_, {})) take_text(held, delta);
  if (state_ == State::outside && !header_.empty()) begin_message_without_header(delta);
}

void HarmonyStream::take_text(char c, ReasoningDelta& delta) {
  if (state_ == State::outside) return take_outside(c, delta);
  if (state_ == State::message) return say({&c, 1}, delta);
  header_ += c;
  if (header_.size() > kLongestHeader) begin_message_without_header(delta);
}

// Where no message is open a header may go on ("to=functions.f"), and white space means nothing.
void HarmonyStream::take_outside(char c, ReasoningDelta& delta) {
  header_ += c;
  const std::string_view text = std::string_view(header_).substr(
      std::min(header_.find_first_not_of(kSpaces), header_.size()));
  if (text == kTo) state_ = State::header;
  if (!kTo.starts_with(text)) begin_message_without_header(delta);
}

void HarmonyStream::take_marker(ReasoningDelta& delta) {
  const std::string marker = std::exchange(marker_, {});
  const bool is_word = state_ == State::outside && !without_spaces(header_).empty();
  if (is_word) begin_message_without_header(delta);
  if (marker == kMessage) {
    if (state_ != State::message) begin_message(delta);
  } else if (marker == kStart) {
    header_.clear();
    state_ = State::header;
  } else if (marker == kChannel) {
    if (state_ == State::message) header_.clear();
    header_ += marker;
    state_ = State::header;
  } else if (marker == kConstrain) {
    if (state_ == State::message) return;
    header_ += marker;
    state_ = State::header;
  } else {
    header_.clear();
    state_ = State::outside;
  }
}

void HarmonyStream::begin_message(ReasoningDelta& delta) {
  const std::string_view channel = word_behind(header_, kChannel);
  const std::string recipient(word_behind(header_, kTo));
  is_final_ = channel == "final";
  is_thought_ = channel == "analysis" || (only_final_ && !is_final_);
  is_new_ = true;
  header_.clear();
  state_ = State::message;
  if (!recipient.empty()) say(std::string(kTo) + recipient + " ", delta);
}

// What was taken for the beginning of a header is text, but for its markers. What only looks like a
// marker when another one is gone is text, too.
void HarmonyStream::begin_message_without_header(ReasoningDelta& delta) {
  const std::string header = std::exchange(header_, {});
  std::string text;
  for (std::string_view rest = header; !rest.empty();) {
    const size_t marker = rest.starts_with(kChannel)     ? kChannel.size()
                          : rest.starts_with(kConstrain) ? kConstrain.size()
                                                         : 0;
    if (marker == 0) text += rest.front();
    rest.remove_prefix(std::max<size_t>(marker, 1));
  }
  is_final_ = false;
  is_thought_ = only_final_;
  is_new_ = true;
  state_ = State::message;
  say(text, delta);
}

void HarmonyStream::say(std::string_view text, ReasoningDelta& delta) {
  bool& has_text = is_thought_ ? has_thought_ : has_said_;
  std::string& to = is_thought_ ? delta.reasoning : delta.content;
  if (std::exchange(is_new_, false) && has_text) to += "\n\n";
  to += text;
  has_text = true;
}

std::span<const std::string_view> HarmonyStream::next_markers() const {
  if (state_ == State::outside) return kHarmonyBegins;
  return {};
}

std::string HarmonyStream::key() const {
  return std::to_string(static_cast<int>(state_)) + header_ + marker_;
}

ThoughtFormat thought_format(const Tokenizer& tokenizer) {
  const auto has = [&](std::string_view text) {
    return special_token(tokenizer.vocabulary(), text) >= 0;
  };
  const bool is_harmony = has(kStart) && has(kChannel) && has(kMessage) && has(kReturn);
  return is_harmony ? ThoughtFormat::harmony : ThoughtFormat::think;
}

void settle_harmony_ends(Vocabulary& vocabulary) {
  const Token end = special_token(vocabulary, kEnd);
  const Token turn_ends[] = {special_token(vocabulary, kReturn), special_token(vocabulary, kCall)};
  if (turn_ends[0] < 0 || turn_ends[1] < 0) return;
  if (end >= 0) std::erase(vocabulary.eos, end);
  for (const Token token : turn_ends)
    if (std::ranges::find(vocabulary.eos, token) == vocabulary.eos.end())
      vocabulary.eos.push_back(token);
}

ReasoningStream::ReasoningStream(ThoughtFormat format, std::string_view prompt, bool only_final)
    : stream_(ThinkStream(prompt)) {
  if (format == ThoughtFormat::harmony) stream_.emplace<HarmonyStream>(prompt, only_final);
}

ReasoningDelta ReasoningStream::push(std::string_view text) {
  ReasoningDelta delta;
  for (const char c : text) std::visit([&](auto& stream) { stream.push(c, delta); }, stream_);
  return delta;
}

ReasoningDelta ReasoningStream::finish() {
  ReasoningDelta delta;
  std::visit([&](auto& stream) { stream.finish(delta); }, stream_);
  return delta;
}

bool ReasoningStream::answers() const {
  return std::visit([](const auto& stream) { return stream.answers(); }, stream_);
}

bool ReasoningStream::may_answer() const {
  return std::visit([](const auto& stream) { return stream.may_answer(); }, stream_);
}

bool ReasoningStream::skips_space() const {
  return std::holds_alternative<ThinkStream>(stream_);
}

std::span<const std::string_view> ReasoningStream::next_markers() const {
  return std::visit([](const auto& stream) { return stream.next_markers(); }, stream_);
}

std::string ReasoningStream::key() const {
  return std::visit([](const auto& stream) { return stream.key(); }, stream_);
}

std::vector<ThoughtMarker> thought_markers(const Tokenizer& tokenizer) {
  const bool is_harmony = thought_format(tokenizer) == ThoughtFormat::harmony;
  const std::span<const std::string_view> texts =
      is_harmony ? std::span<const std::string_view>(kHarmonyMarkers) : kThinkMarkers;
  std::vector<ThoughtMarker> markers;
  for (const AddedToken& token : tokenizer.vocabulary().added)
    if (has_marker(texts, token.text)) markers.push_back({token.id, token.text});
  return markers;
}

std::vector<Token> special_thought_markers(const Tokenizer& tokenizer) {
  std::vector<Token> tokens;
  for (const ThoughtMarker& marker : thought_markers(tokenizer))
    if (tokenizer.is_special(marker.token) && !tokenizer.is_eos(marker.token))
      tokens.push_back(marker.token);
  return tokens;
}

std::optional<ThoughtsAhead> thoughts_ahead(const Tokenizer& tokenizer, std::string_view prompt) {
  ThoughtsAhead ahead{ReasoningStream(thought_format(tokenizer), prompt, true),
                      thought_markers(tokenizer)};
  if (ahead.stream.answers()) return std::nullopt;
  if (!ahead.stream.may_answer()) return ahead;
  // The model alone could begin a thought: where it has tokens for it, and the template has not
  // written an empty one.
  const bool is_closed = without_spaces(prompt).ends_with(kClose);
  const bool has_tokens = ahead.markers.size() >= kThinkMarkers.size();
  if (is_closed || !has_tokens) return std::nullopt;
  return ahead;
}

std::string MarkedThoughts::push(const ReasoningDelta& delta) {
  std::string text;
  if (!delta.reasoning.empty() && !std::exchange(is_open_, true)) text += "<think>\n";
  text += delta.reasoning;
  if (!delta.content.empty()) text += finish() + delta.content;
  return text;
}

std::string MarkedThoughts::finish() {
  return std::exchange(is_open_, false) ? "\n</think>\n\n" : "";
}

}  // namespace tyto
