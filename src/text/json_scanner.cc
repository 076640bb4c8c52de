#include "text/json_scanner.h"

#include <string_view>

namespace tyto {
namespace {

constexpr size_t kMaxJsonDepth = 64;  // what base/json.h reads
constexpr size_t kMaxWordBytes = 64;  // longer numbers are not numbers that anybody means

bool is_json_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

bool is_json_digit(char c) {
  return c >= '0' && c <= '9';
}

size_t digits_at(std::string_view text) {
  size_t count = 0;
  while (count < text.size() && is_json_digit(text[count])) ++count;
  return count;
}

// -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?
bool is_number(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  const size_t whole = digits_at(text);
  if (whole == 0 || (whole > 1 && text[0] == '0')) return false;
  text.remove_prefix(whole);
  if (text.starts_with('.')) {
    const size_t fraction = digits_at(text.substr(1));
    if (fraction == 0) return false;
    text.remove_prefix(1 + fraction);
  }
  if (text.starts_with('e') || text.starts_with('E')) {
    text.remove_prefix(1);
    if (text.starts_with('+') || text.starts_with('-')) text.remove_prefix(1);
    const size_t exponent = digits_at(text);
    if (exponent == 0) return false;
    text.remove_prefix(exponent);
  }
  return text.empty();
}

// Whether a word is the beginning of one of JSON's.
bool may_be_word(const std::string& text) {
  for (const std::string_view word : {"true", "false", "null"})
    if (word.starts_with(text)) return true;
  return text.size() <= kMaxWordBytes && (is_number(text) || is_number(text + '0'));
}

bool is_word(std::string_view text) {
  return text == "true" || text == "false" || text == "null" || is_number(text);
}

}  // namespace

bool JsonScanner::push(char c) {
  if (in_string()) return go_on_in_string(c);
  if (state_ == State::word) {
    const bool ends = is_json_space(c) || c == ',' || c == '}' || c == ']';
    if (!ends) return go_on_in_word(c);
    if (!is_word(word_)) return false;
    state_ = State::after_value;
  }
  if (is_json_space(c) && state_ != State::begin && state_ != State::complete) return true;
  switch (state_) {
    case State::begin:
      return c == '{' && open(c, State::key_or_end);
    case State::value_or_end:
      return c == ']' ? close() : begin_value(c);
    case State::value:
      return begin_value(c);
    case State::key_or_end:
      return c == '}' ? close() : c == '"' && begin_string(true);
    case State::key:
      return c == '"' && begin_string(true);
    case State::colon:
      if (c == ':') state_ = State::value;
      return c == ':';
    case State::after_value:
      return after_value(c);
    default:
      return false;
  }
}

bool JsonScanner::begin_value(char c) {
  if (c == '{') return open(c, State::key_or_end);
  if (c == '[') return open(c, State::value_or_end);
  if (c == '"') return begin_string(false);
  if (c != '-' && !is_json_digit(c) && c != 't' && c != 'f' && c != 'n') return false;
  word_ = c;
  state_ = State::word;
  return true;
}

bool JsonScanner::begin_string(bool is_key) {
  in_key_ = is_key;
  state_ = State::string;
  return true;
}

bool JsonScanner::go_on_in_string(char c) {
  constexpr std::string_view kEscapes = "\"\\/bfnrt";
  constexpr std::string_view kHexDigits = "0123456789abcdefABCDEF";
  switch (state_) {
    case State::escape:
      if (c != 'u' && kEscapes.find(c) == kEscapes.npos) return false;
      state_ = c == 'u' ? State::hex : State::string;
      digits_left_ = 4;
      return true;
    case State::hex:
      if (kHexDigits.find(c) == kHexDigits.npos) return false;
      if (--digits_left_ == 0) state_ = State::string;
      return true;
    default:
      if (static_cast<unsigned char>(c) < ' ') return false;
      if (c == '\\') state_ = State::escape;
      if (c == '"') state_ = in_key_ ? State::colon : State::after_value;
      return true;
  }
}

bool JsonScanner::go_on_in_word(char c) {
  if (!may_be_word(word_ + c)) return false;
  word_ += c;
  return true;
}

bool JsonScanner::after_value(char c) {
  const bool in_object = open_.back() == '{';
  if (c == ',') state_ = in_object ? State::key : State::value;
  return c == ',' || (c == (in_object ? '}' : ']') && close());
}

bool JsonScanner::open(char bracket, State next) {
  if (open_.size() == kMaxJsonDepth) return false;
  open_ += bracket;
  state_ = next;
  return true;
}

bool JsonScanner::close() {
  open_.pop_back();
  state_ = open_.empty() ? State::complete : State::after_value;
  return true;
}

}  // namespace tyto
