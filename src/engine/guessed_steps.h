// Guesses of several requests that share steps: how many rows each may have, and what they cost.
#pragma once

#include <array>
#include <cstdint>

namespace tyto {

// Learns from plain steps what so many tokens take together. A request's guesses make a step longer
// for everybody in it, so each is charged the time that its guesses add once for each request: it
// guesses only where what it gains is more than what all of them lose. With many requests, rows
// cost more than they gain, and requests cease to guess by themselves.
class GuessedSteps {
 public:
  // Rows of one request, its settled token's among them, in a step of so many that decode; 1: no
  // guesses. A plain step comes first, and then again now and then, since it is what guesses are
  // held against.
  uint32_t rows_each(uint32_t decoding);

  // A step without prompts, with so many guesses of all requests.
  void observe(uint32_t decoding, uint32_t guesses, uint64_t ns);

  // What that step was for a request with `own` of the guesses, in the units of kPlain.
  uint64_t charged(uint32_t decoding, uint32_t own, uint32_t guesses, uint64_t ns) const;

  static constexpr uint64_t kPlain = 1'000'000;  // a step without guesses

 private:
  // With few rows a pass is bound by reading the weights; a head takes as many at once.
  static constexpr uint32_t kMostRows = 16;
  static constexpr uint32_t kPlainEvery = 32;
  // The median of a few: one step that was interrupted says nothing about the next.
  static constexpr uint32_t kKept = 5;

  struct Plain {
    std::array<uint64_t, kKept> ns = {};
    uint32_t seen = 0;
    uint32_t guessed_since = 0;  // steps
    double median() const;
  };

  std::array<Plain, kMostRows + 1> plain_;  // [requests that decode]
};

}  // namespace tyto
