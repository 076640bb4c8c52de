// What an engine made of some prompts, greedily, with its best candidates at every position: the
// file that engines are compared by. docs/verify.md describes the format.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/progress.h"
#include "engine/generate.h"
#include "llama/logits.h"

namespace tyto {

struct Continuation {
  std::string text = {};  // the prompt's, for people
  std::vector<Token> prompt = {};
  std::vector<Token> generated = {};             // an end-of-text token is its last
  std::vector<std::vector<Candidate>> top = {};  // [generated], best first
  bool operator==(const Continuation&) const = default;
};

struct Transcript {
  std::string engine = {};  // "tyto 0.1 on vnpu", "transformers 5.0"
  std::string model = {};
  uint32_t max_tokens = 0;  // asked for, per prompt
  uint32_t k = 0;           // candidates at every position, at least
  std::vector<Continuation> continuations = {};
  bool operator==(const Transcript&) const = default;
};

// The k best and those that tie with the last of them, up to a bound; equal logits in the order of
// their ids. A device Error when a logit is not a finite number.
std::vector<Candidate> top_candidates(std::span<const float> logits, uint32_t k);

inline constexpr FileKind kTranscriptFile = {"a transcript of Tyto's",
                                             "{\"schema\":\"tyto-transcript-"};
std::string transcript_json(const Transcript& transcript);
// Refuses another version, ids outside `vocab`, and generated tokens that their own candidates
// contradict. `name` is how errors call the text.
Transcript transcript_from_json(const std::string& text, const std::string& name, uint32_t vocab);

// Greedy continuations with their candidates, by a pipeline or by the plain reference.

struct GreedyRequest {
  std::span<const Token> prompt;
  uint32_t tokens = 32;      // fewer when an end-of-text token comes
  uint32_t candidates = 10;  // kept at every position
};

// With `logits`, all of every position's are kept there.
using AllLogits = std::vector<std::vector<float>>;

// A request of its own; what was done is added to `receipt`.
Continuation greedy(const Generator& with, const GreedyRequest& request, Receipt& receipt,
                    AllLogits* logits = nullptr, const Progress& progress = {});

Continuation greedy_reference(const Model& model, const Tokenizer& tokenizer,
                              const GreedyRequest& request, AllLogits* logits = nullptr,
                              const Progress& progress = {});

// Nothing when the device of each phase that ran completed all that was submitted to it, and
// something; else the reason.
std::optional<std::string> why_not_executed(const std::string& prefill, const std::string& decode,
                                            const Receipt& receipt);

}  // namespace tyto
