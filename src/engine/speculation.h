// Guessing the next tokens and checking them together: one call of k + 1 rows reads the weights
// once and may settle k + 1 tokens. Nothing that a request is answered with depends on the guesses:
// at each row the sampler chooses as it would without them, and the first choice that differs from
// the guess ends the round. A guess is certain of itself, so this is rejection sampling with a
// draft distribution of one token; it also draws the random numbers that plain decoding draws.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/draft_length.h"
#include "text/vocabulary.h"

namespace tyto {

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
