// Guessing the next tokens and checking them together: one call of k + 1 rows reads the weights
// once and may settle k + 1 tokens. Nothing that a request is answered with depends on the guesses:
// at each row the sampler chooses as it would without them, and the first choice that differs from
// the guess ends the round. A guess is certain of itself, so this is rejection sampling with a
// draft distribution of one token; it also draws the random numbers that plain decoding draws.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "text/tokenizer/vocabulary.h"

namespace tyto {

// Guesses of several requests that share steps: how many rows each may have, and what they cost.

// Learns from plain steps what several tokens take together. A request's guesses make a step longer
// for all in it, so each is charged the time that its guesses add once for each request: it
// guesses only where what it gains is more than what all of them lose. With many requests, rows
// cost more than they gain, and requests cease to guess by themselves.
class GuessedSteps {
 public:
  // Rows of one request, its settled token's among them, in a step in which `decoding` requests
  // decode; 1: no guesses. A plain step comes first, and then again now and then, since it is what
  // guesses are held against.
  uint32_t rows_each(uint32_t decoding);

  // A step without prompts, with `guesses` of all requests.
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

// How many tokens are worth guessing. Times decide only that, never what is answered.

inline constexpr uint32_t kMostGuesses = 15;  // with the settled token's, as many rows as a head

// What rounds took by their number of guesses, guessing included. Requests of a pipeline share it.
class RoundCosts {
 public:
  void observe(uint32_t guesses, uint64_t ns);
  bool has_plain() const { return recent_[0].seen > 0; }
  uint32_t longest() const;  // the largest number of guesses that was seen
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

// One request's: from the share of guesses that came true, and from what rounds took. It keeps an
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

// At most `most` tokens that may follow `text`, the prompt and the answer so far; fewer or none
// where nothing suggests itself. With `most` 0 it only reads along. Kept per request, whose text
// grows from call to call: it may remember what it has seen of it.
using Drafter = std::function<std::vector<Token>(std::span<const Token> text, uint32_t most)>;

// The longest earlier occurrence of the text's last tokens says what may follow.
Drafter lookup_drafter();

// What one request guesses with.
struct Speculation {
  std::string source;  // who guesses, for the receipt: "lookup", or a model's name
  Drafter drafter;
  DraftLength length;
};

// What the requests of an engine guess with: who guesses, and what calls were seen to take. Made
// for one pipeline, and used by its thread.
class Speculator {
 public:
  // `make_drafter` is called for each request.
  Speculator(std::string source, std::function<Drafter()> make_drafter, uint32_t most)
      : source_(std::move(source)), make_drafter_(std::move(make_drafter)), most_(most) {}

  std::shared_ptr<Speculation> begin_request() const {
    return std::make_shared<Speculation>(
        Speculation{source_, make_drafter_(), DraftLength(most_, costs_)});
  }

 private:
  std::string source_;
  std::function<Drafter()> make_drafter_;
  uint32_t most_;
  std::shared_ptr<RoundCosts> costs_ = std::make_shared<RoundCosts>();  // with every request
};

// What bounds the guesses of one call.
struct GuessRoom {
  uint32_t rows = 1;    // that the call may have, the settled token's among them
  uint32_t tokens = 0;  // that the answer may still get
  uint32_t vocab = 0;
};

// One call of the model: a token that is settled, and guesses of what follows it.
class Round {
 public:
  // `text` ends with the settled token. Guesses are asked for where there is room for them; what
  // is too long or outside the vocabulary is cut off.
  Round(Speculation* speculation, std::span<const Token> text, const GuessRoom& room);

  std::span<const Token> tokens() const { return tokens_; }  // the rows of the call
  void drop_guesses() { tokens_.resize(1); }

  // Whether the next row's logits are to be chosen from; they come in order.
  bool is_open() const { return !is_over_; }
  // What was chosen at that row; nothing where the answer ends there, and the round with it.
  void choose(std::optional<Token> token);

  uint32_t settled() const { return rows_; }  // rows that were chosen from: what the cache keeps
  uint32_t drafted() const { return static_cast<uint32_t>(tokens_.size()) - 1; }
  uint32_t accepted() const { return accepted_; }
  double drafting_seconds() const { return drafting_seconds_; }

 private:
  std::vector<Token> tokens_;
  uint32_t rows_ = 0;
  uint32_t accepted_ = 0;
  bool is_over_ = false;
  double drafting_seconds_ = 0;
};

}  // namespace tyto
