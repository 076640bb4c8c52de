// A text as one vector: where its meaning lies among others.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/generate.h"

namespace tyto {

struct Embedding {
  std::vector<float> values;  // [the model's width], of length 1
  Receipt receipt;
};

// A text on its way to its vector, pass by pass: others may use the pipeline in between. The vector
// is the mean of all positions' hidden states, normalised. What `with` knows of prefixes is of no
// use: it has no hidden states.
class EmbeddingRun {
 public:
  // Throws an input Error for tokens that cannot be run, a busy one when other sequences have the
  // cache that it needs. What `with` refers to outlives it.
  EmbeddingRun(const Generator& with, std::vector<Token> tokens);

  size_t left() const { return tokens_.size() - sequence_.position(); }  // tokens to be run
  // Some more tokens, at most `most`. Throws what running them ends in.
  void run_pass(uint32_t most = UINT32_MAX);
  Embedding result() const;  // when none are left

 private:
  void add(uint32_t position, std::span<const float> hidden);

  const Generator with_;
  const std::vector<Token> tokens_;
  const Side side_;
  Sequence sequence_;
  std::vector<double> sums_;
  uint32_t added_ = 0;  // positions in the sums
  double seconds_ = 0;
};

// The same in one call.
Embedding embed(const Generator& with, std::span<const Token> tokens,
                const Progress& progress = {});

}  // namespace tyto
