#include "engine/draft_length.h"

#include <algorithm>
#include <vector>

#include "base/error.h"

namespace tyto {
namespace {

// Of a row more, in plain rounds, before any was timed.
constexpr double kUnknownRow = 0.12;
// What a round must be expected to gain over a plain one.
constexpr double kWorthwhile = 1.02;

constexpr double kOpeningBalance = 1.2;
constexpr double kIncome = 0.007;  // of each round's time
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

// Of rows beyond `longest`. The first guess costs most: kernels for one row are their own.
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

// Nobody knows what many rows take before fewer were timed.
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

}  // namespace tyto
