// Greedy continuations with their candidates, by a pipeline or by the plain reference.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/progress.h"
#include "check/transcript.h"
#include "engine/generate.h"

namespace tyto {

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
