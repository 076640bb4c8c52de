#include "shell/word_wrap.h"

#include <utility>

#include "base/utf8.h"

namespace tyto {
namespace {

constexpr size_t kTab = 8;
constexpr size_t kFence = 3;
constexpr size_t kIndent = 2;

bool may_be_fence(char32_t code_point) {
  return code_point == U'`' || code_point == U'~';
}

}  // namespace

WordWrap::WordWrap(size_t columns) : columns_(columns) {}

std::string WordWrap::push(std::string_view text) {
  if (columns_ == 0) return std::string(text);
  std::string out;
  const std::string whole = std::exchange(incomplete_, "") + std::string(text);
  std::string_view rest = whole;
  while (!rest.empty()) {
    const Utf8Head head = utf8_head(rest);
    if (head.kind == Utf8Head::Kind::truncated) {
      incomplete_ = rest;
      break;
    }
    take(rest.substr(0, head.bytes), head.code_point, out);
    rest.remove_prefix(head.bytes);
  }
  return out;
}

std::string WordWrap::finish() {
  std::string out;
  end_word(out);
  release(out);
  return out + std::exchange(incomplete_, "");
}

void WordWrap::begin_line() {
  column_ = 0;
}

void WordWrap::take(std::string_view character, char32_t code_point, std::string& out) {
  if (code_point == U'\n') return end_line(out);
  const bool is_space = code_point == U' ' || code_point == U'\t';
  if (is_space) end_word(out);
  is_in_long_word_ = is_in_long_word_ && !is_space;
  look_at_beginning(code_point);
  const size_t width = columns_of(character);
  if (is_left_alone_ || is_in_long_word_) {
    release(out);
    out += character;
    column_ = (column_ + width) % columns_;
    return;
  }
  if (is_space) {
    const size_t at = column_ + spaces_width_;
    spaces_width_ += code_point == U'\t' ? kTab - at % kTab : 1;
    spaces_ += character;
    return;
  }
  if (width == 2) end_word(out);
  word_ += character;
  word_width_ += width;
  if (width == 2 || word_width_ > columns_) end_word(out);
}

// Spaces for which there is no room would begin a line of their own.
void WordWrap::end_line(std::string& out) {
  end_word(out);
  if (column_ + spaces_width_ > columns_) {
    spaces_.clear();
    spaces_width_ = 0;
  }
  release(out);
  out += '\n';
  column_ = seen_ = fence_length_ = 0;
  is_left_alone_ = fence_ != 0;
  is_in_long_word_ = false;
}

// What a line begins with says whether it is prose.
void WordWrap::look_at_beginning(char32_t code_point) {
  if (code_point == U'\t' && seen_ == 0) is_left_alone_ = true;
  if (code_point == U' ') {
    if (seen_ == 0 && spaces_.size() + 1 >= kIndent) is_left_alone_ = true;
    return;
  }
  if (code_point == U'\t') return;
  if (seen_++ == 0) {
    first_ = code_point;
    if (code_point == U'|') is_left_alone_ = true;
  }
  if (!may_be_fence(first_) || code_point != first_ || fence_length_ + 1 != seen_) return;
  if (++fence_length_ != kFence) return;
  is_left_alone_ = true;
  if (fence_ == 0)
    fence_ = first_;
  else if (fence_ == first_)
    fence_ = 0;
}

// Onto this line where there is room, else onto the next one, without the spaces before it.
void WordWrap::end_word(std::string& out) {
  if (word_.empty()) return;
  const bool is_longer = word_width_ > columns_;
  if (column_ > 0 && !is_longer && column_ + spaces_width_ + word_width_ > columns_) {
    out += '\n';
    column_ = 0;
    spaces_.clear();
    spaces_width_ = 0;
  }
  release(out);
  is_in_long_word_ = is_longer;
  if (is_longer) column_ %= columns_;
}

void WordWrap::release(std::string& out) {
  out += std::exchange(spaces_, "") + std::exchange(word_, "");
  column_ += std::exchange(spaces_width_, 0) + std::exchange(word_width_, 0);
}

}  // namespace tyto
