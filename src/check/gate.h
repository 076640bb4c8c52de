// The gate: do two engines that continued one prompt greedily agree? Pure comparison.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "check/transcript.h"

namespace tyto {

struct GateOptions {
  uint32_t tokens = 32;  // compared, at most
  uint32_t k = 5;        // where tokens differ, each must be among the other side's k best
};

struct GateResult {
  bool passed = false;
  uint32_t compared = 0;               // positions looked at, the divergence included
  std::optional<uint32_t> divergence;  // the first position where the tokens differ
  Token ours = 0, theirs = 0;          // there
  uint32_t rank_of_ours = 0;           // among their candidates; 0: not one of them
  uint32_t rank_of_theirs = 0;
  std::string reason;  // why it failed
};

// Tokens with equal logits have equal ranks: 1 + how many are strictly better. 0: not listed.
uint32_t rank_of(Token token, std::span<const Candidate> candidates);

// Both sides saw the same context up to the first position where their tokens differ; what comes
// after it is not compared. A side that ended earlier than the other, or that has nothing, fails.
GateResult compare_greedy(const Continuation& ours, const Continuation& theirs,
                          const GateOptions& options);

}  // namespace tyto
