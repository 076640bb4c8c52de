#include "engine/speculation.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "trace/trace.h"

namespace tyto {

double GuessedSteps::Plain::median() const {
  const uint32_t count = std::min(seen, kKept);
  std::array<uint64_t, kKept> sorted = ns;
  std::sort(sorted.begin(), sorted.begin() + count);
  return static_cast<double>(sorted[count / 2]);
}

uint32_t GuessedSteps::rows_each(uint32_t decoding) {
  if (decoding == 0 || 2 * decoding > kMostRows) return 1;
  const Plain& plain = plain_[decoding];
  if (plain.seen == 0 || plain.guessed_since >= kPlainEvery) return 1;
  return kMostRows / decoding;
}

void GuessedSteps::observe(uint32_t decoding, uint32_t guesses, uint64_t ns) {
  if (decoding > kMostRows) return;
  Plain& plain = plain_[decoding];
  if (guesses > 0) {
    ++plain.guessed_since;
    return;
  }
  plain.ns[plain.seen++ % kKept] = std::max<uint64_t>(ns, 1);
  plain.guessed_since = 0;
}

uint64_t GuessedSteps::charged(uint32_t decoding, uint32_t own, uint32_t guesses,
                               uint64_t ns) const {
  if (own == 0 || decoding > kMostRows || plain_[decoding].seen == 0) return kPlain;
  const double added = static_cast<double>(ns) / plain_[decoding].median() - 1;
  const double share = static_cast<double>(own) / guesses;
  return static_cast<uint64_t>(kPlain * std::max(1 + added * share * decoding, 0.01));
}

namespace {

// The cost of a row more, in plain rounds, before any was timed.
constexpr double kUnknownRow = 0.12;
// What a round must be expected to gain over a plain one.
constexpr double kWorthwhile = 1.02;

constexpr double kOpeningBalance = 1.2;
constexpr double kIncome = 0.007;  // share of each round's time
constexpr double kMostSaved = 8;   // gains of long ago are not gambled away

// A guess is as likely right as wrong until some were tried; what was tried fifty rounds ago
// hardly counts any more.
constexpr double kTriedAtFirst = 2, kTrueAtFirst = 1;
constexpr double kMemory = 0.95;

constexpr uint32_t kLongestWait = 64;
// Times get old as a text grows, and what rounds are compared with must not.
constexpr uint32_t kPlainEvery = 32;

}  // namespace

double RoundCosts::Recent::median() const {
  std::array<uint64_t, kKept> sorted = ns;
  const auto count = static_cast<std::ptrdiff_t>(std::min<uint64_t>(seen, kKept));
  const auto middle = sorted.begin() + (count - 1) / 2;
  std::nth_element(sorted.begin(), middle, sorted.begin() + count);
  return static_cast<double>(*middle);
}

void RoundCosts::observe(uint32_t guesses, uint64_t ns) {
  TYTO_ASSERT(guesses <= kMostGuesses);
  Recent& recent = recent_[guesses];
  recent.ns[recent.seen++ % kKept] = std::max<uint64_t>(ns, 1);
}

uint32_t RoundCosts::longest() const {
  uint32_t longest = kMostGuesses;
  while (longest > 0 && recent_[longest].seen == 0) --longest;
  return longest;
}

// The time of a row beyond `longest`. The first guess costs most: one row has its own kernels.
double RoundCosts::further_row_ns(uint32_t longest) const {
  const double plain = recent_[0].median(), from = recent_[longest].median();
  if (longest == 0) return kUnknownRow * plain;
  uint32_t first = 1;
  while (recent_[first].seen == 0) ++first;
  return first < longest ? (from - recent_[first].median()) / (longest - first)
                         : (from - plain) / longest / 2;
}

double RoundCosts::expected_ns(uint32_t guesses) const {
  TYTO_ASSERT(has_plain() && guesses <= kMostGuesses);
  if (recent_[guesses].seen > 0) return recent_[guesses].median();
  uint32_t below = guesses, above = guesses;
  while (recent_[below].seen == 0) --below;
  while (above <= kMostGuesses && recent_[above].seen == 0) ++above;
  const double from = recent_[below].median();
  const double row = above <= kMostGuesses ? (recent_[above].median() - from) / (above - below)
                                           : further_row_ns(below);
  return from + std::max(row, 0.0) * (guesses - below);
}

DraftLength::DraftLength(uint32_t most, std::shared_ptr<RoundCosts> costs)
    : most_(std::min(most, kMostGuesses)),
      costs_(std::move(costs)),
      account_(kOpeningBalance),
      tried_(kTriedAtFirst),
      came_true_(kTrueAtFirst) {}

// The call's own token, and each guess that comes true after others did.
double DraftLength::expected_tokens(uint32_t guesses) const {
  const double share = came_true_ / tried_;
  double tokens = 1, all_true = 1;
  for (uint32_t i = 0; i < guesses; ++i) tokens += all_true *= share;
  return tokens;
}

// What many rows take is not known before fewer were timed.
uint32_t DraftLength::best_length() const {
  uint32_t best = 0;
  double best_rate = kWorthwhile;
  const uint32_t most = std::min(most_, 2 * costs_->longest() + 1);
  for (uint32_t guesses = 1; guesses <= most; ++guesses) {
    const double rate = expected_tokens(guesses) / costs_->relative(guesses);
    if (rate > best_rate) best = guesses, best_rate = rate;
  }
  return best;
}

uint32_t DraftLength::next() {
  if (!costs_->has_plain() || since_plain_ >= kPlainEvery) return 0;
  uint32_t guesses = best_length();
  if (guesses == 0) {
    if (waiting_ > 0) {
      --waiting_;
      return 0;
    }
    guesses = std::min(most_, 1u);
  }
  while (guesses > 0 && costs_->relative(guesses) - 1 > account_) --guesses;
  return guesses;
}

void DraftLength::observe(uint32_t drafted, uint32_t accepted, uint64_t ns) {
  TYTO_ASSERT(accepted <= drafted);
  costs_->observe(drafted, ns);
  if (drafted > 0) learn(drafted, accepted);
  since_plain_ = drafted > 0 ? since_plain_ + 1 : 0;
  if (!costs_->has_plain()) return;
  const double plain_rounds = costs_->relative(drafted);
  account_ += kIncome * plain_rounds;
  if (drafted > 0) account_ += 1 + accepted - plain_rounds;
  account_ = std::min(account_, kMostSaved);
}

// What came after the first guess that was wrong has not been tried.
void DraftLength::learn(uint32_t drafted, uint32_t accepted) {
  tried_ = kMemory * tried_ + std::min(accepted + 1, drafted);
  came_true_ = kMemory * came_true_ + accepted;
  if (accepted > 0) {
    back_off_ = 1;
    waiting_ = 0;
  } else {
    waiting_ = back_off_;
    back_off_ = std::min(2 * back_off_, kLongestWait);
  }
}

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
