// How many tokens are worth guessing. Times decide only that, never what is answered.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <utility>

namespace tyto {

inline constexpr uint32_t kMostGuesses = 15;  // with the settled token's, as many rows as a head

// What rounds with so many guesses took, guessing included. Requests of one pipeline share it.
class RoundCosts {
 public:
  void observe(uint32_t guesses, uint64_t ns);
  bool has_plain() const { return recent_[0].seen > 0; }
  uint32_t longest() const;  // of the numbers of guesses that were seen
  // In plain rounds, of which one was seen; of numbers that were not seen, by their neighbours.
  double relative(uint32_t guesses) const { return expected_ns(guesses) / expected_ns(0); }

 private:
  // The median of a few: one round that was interrupted says nothing about the next.
  static constexpr uint32_t kKept = 5;
  struct Recent {
    std::array<uint64_t, kKept> ns = {};
    uint64_t seen = 0;
    double median() const;
  };

  double expected_ns(uint32_t guesses) const;
  double further_row_ns(uint32_t longest) const;

  std::array<Recent, kMostGuesses + 1> recent_;
};

// Of one request: from the share of guesses that came true, and from what rounds took. It keeps an
// account in plain rounds, to which every round adds a little and a round with guesses what it
// saved or lost; what the account cannot pay is not guessed. So a request whose guesses never come
// true loses the opening balance and the little, and no more.
class DraftLength {
 public:
  DraftLength(uint32_t most, std::shared_ptr<RoundCosts> costs);

  // For the next round; 0: a plain one.
  uint32_t next();
  // What came of a round with `drafted` guesses, of which the first `accepted` came true.
  void observe(uint32_t drafted, uint32_t accepted, uint64_t ns);

 private:
  double expected_tokens(uint32_t guesses) const;
  uint32_t best_length() const;
  void learn(uint32_t drafted, uint32_t accepted);

  uint32_t most_;
  std::shared_ptr<RoundCosts> costs_;  // with the pipeline's other requests
  double account_;                     // in plain rounds
  double tried_, came_true_;           // guesses, the latest counting most
  uint32_t waiting_ = 0;               // plain rounds before guesses are tried again
  uint32_t back_off_ = 1;              // how many those will be after a failure
  uint32_t since_plain_ = 0;           // rounds with guesses
};

}  // namespace tyto
