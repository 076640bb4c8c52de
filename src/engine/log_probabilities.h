// How probable a model finds tokens, from its logits: before temperature, penalties and
// constraints.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "text/vocabulary.h"

namespace tyto {

struct LogProbability {
  Token token = 0;
  float value = 0;
};

struct LogProbabilities {
  float chosen = 0;
  std::vector<LogProbability> top = {};  // the most probable first
};

// Of the token that was chosen, and of the `count` most probable.
LogProbabilities log_probabilities(std::span<const float> logits, Token chosen, uint32_t count);

}  // namespace tyto
