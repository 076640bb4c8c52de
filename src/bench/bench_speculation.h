// Decoding with guesses in a benchmark: who guesses, and the same tokens as without.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/progress.h"
#include "bench/bench_tests.h"
#include "engine/engine.h"
#include "engine/speculation.h"

namespace tyto {

// What a model says after a text, and which of these tokens are guessed wrongly.
struct OracleScript {
  size_t begin = 0;  // tokens of the text
  std::vector<Token> tokens = {};
  std::vector<bool> is_wrong = {};  // [tokens]
  uint32_t vocab = 0;
};
// Makes drafts wrong for all but the share `acceptance` of the tokens, to the nearest one, always
// the same ones.
void falsify_drafts(OracleScript& script, double acceptance);
// Guesses as the script has it.
Drafter oracle_drafter(std::shared_ptr<const OracleScript> script);

// Guesses for one engine's runs. What calls were seen to take is kept from run to run, as in a
// program that answers many requests.
class BenchGuesser {
 public:
  // `most` bounds the guesses of a call. Throws a usage Error where the engine's device cannot
  // check several guesses at once.
  BenchGuesser(const SpeculationName& name, uint32_t most, Engine& engine,
               const EngineOptions& options, const Progress& progress);
  BenchGuesser(const BenchGuesser&) = delete;  // its drafters refer to it
  BenchGuesser& operator=(const BenchGuesser&) = delete;

  const std::string& name() const { return name_.text; }

  // Not timed: what the model says by itself after `text`, of which the sequence holds all but the
  // last token.
  void record(Pipeline& pipeline, Sequence& sequence, std::span<const Token> text, uint32_t tokens);
  // Not timed: who guesses reads the text.
  void begin(std::span<const Token> text);
  // As many tokens as were recorded. Throws a device Error if they are not the same.
  SpeculationCounters run(Pipeline& pipeline, Sequence& sequence);

 private:
  Round next_round(Pipeline& pipeline, Sequence& sequence, uint32_t left);
  void accept(Token token);

  SpeculationName name_;
  std::unique_ptr<Engine> draft_;
  std::shared_ptr<OracleScript> script_ = std::make_shared<OracleScript>();  // with its drafters
  std::optional<Speculator> speculator_;
  std::shared_ptr<Speculation> speculation_;  // for the present run
  std::vector<Token> text_;                   // its own, and what was chosen since
};

}  // namespace tyto
