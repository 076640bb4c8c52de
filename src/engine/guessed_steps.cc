#include "engine/guessed_steps.h"

#include <algorithm>

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

}  // namespace tyto
