// A text as one vector: where its meaning lies among others.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "engine/generate.h"

namespace tyto {

struct Embedding {
  std::vector<float> values;  // [the model's width], of length 1; empty: it was cancelled
  Receipt receipt;
};

// The mean of all positions' hidden states, normalised. Whether to go on is asked before each chunk
// of tokens. Throws an input Error for tokens that cannot be run, a busy one when other sequences
// have the cache that it needs. What `with` knows of prefixes is of no use: it has no hidden
// states.
Embedding embed(const Generator& with, std::span<const Token> tokens,
                const std::function<bool()>& goes_on = {}, const Progress& progress = {});

}  // namespace tyto
