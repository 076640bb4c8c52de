#include "engine/speculation.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <unordered_map>

#include "trace/span.h"

namespace tyto {
namespace {

// Remembers where each few tokens in a row were seen last. Two in a row say little of what follows,
// but a wrong guess costs only the rows of one call, and DraftLength sees to it that those are few.
class TextIndex {
 public:
  std::vector<Token> guess(std::span<const Token> text, uint32_t most) {
    for (; known_ < text.size(); ++known_)  // what ends before the last token has a successor
      for (size_t i = 0; i < kLengths.size(); ++i)
        if (known_ >= kLengths[i]) last_ends_[i][key(text.first(known_), kLengths[i])] = known_;
    std::vector<Token> tokens;
    const size_t from = most > 0 ? last_occurrence(text) : 0;
    if (from == 0) return tokens;
    // Where the text repeats itself to its very end, so will the guess.
    for (size_t i = from; tokens.size() < most; ++i)
      tokens.push_back(i < text.size() ? text[i] : tokens[i - text.size()]);
    return tokens;
  }

 private:
  static constexpr std::array<size_t, 3> kLengths = {4, 3, 2};

  static uint64_t key(std::span<const Token> text, size_t length) {
    uint64_t hash = 0;
    for (const Token token : text.last(length))
      hash = (hash ^ static_cast<uint32_t>(token)) * 0x9e3779b97f4a7c15u + 1;
    return hash;
  }

  // The end of the most recent occurrence of as many of the last tokens as possible; 0: none.
  size_t last_occurrence(std::span<const Token> text) const {
    for (size_t i = 0; i < kLengths.size(); ++i) {
      const size_t length = kLengths[i];
      if (text.size() <= length) continue;
      const auto found = last_ends_[i].find(key(text, length));
      if (found == last_ends_[i].end()) continue;
      const auto there = text.subspan(found->second - length, length);
      if (std::ranges::equal(there, text.last(length))) return found->second;  // no other's hash
    }
    return 0;
  }

  std::array<std::unordered_map<uint64_t, size_t>, kLengths.size()> last_ends_;
  size_t known_ = 0;  // tokens before whose end everything is in last_ends_
};

}  // namespace

Drafter lookup_drafter() {
  // Shared by the copies of the function, which are one drafter.
  return [index = std::make_shared<TextIndex>()](std::span<const Token> text, uint32_t most) {
    return index->guess(text, most);
  };
}

Round::Round(Speculation* speculation, std::span<const Token> text, const GuessRoom& room)
    : tokens_{text.back()} {
  if (speculation == nullptr || room.rows < 2 || room.tokens < 2) return;
  const uint32_t most =
      std::min({speculation->length.next(), room.rows - 1, room.tokens - 1, kMostGuesses});
  if (most == 0) return;
  const uint64_t start = now_ns();
  std::vector<Token> guesses = speculation->drafter(text, most);
  drafting_seconds_ = seconds_between(start, now_ns());
  if (guesses.size() > most) guesses.resize(most);
  const auto is_no_token = [&](Token token) {
    return token < 0 || static_cast<uint32_t>(token) >= room.vocab;
  };
  tokens_.insert(tokens_.end(), guesses.begin(), std::ranges::find_if(guesses, is_no_token));
}

void Round::choose(std::optional<Token> token) {
  ++rows_;
  const bool is_right = rows_ < tokens_.size() && tokens_[rows_] == token;
  if (is_right) ++accepted_;
  is_over_ = !is_right;
}

}  // namespace tyto
