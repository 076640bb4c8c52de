// How well a model predicts a text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/progress.h"
#include "engine/generate.h"

namespace tyto {

// Tokens that are run together, and from which on they are scored.
struct Window {
  size_t begin;
  size_t end;
  size_t scored_from;
};

// Windows overlap: every token but the first, which has nothing before it, is predicted once, from
// at least size - stride tokens before it where the text has them.
std::vector<Window> overlapping_windows(size_t tokens, size_t size, size_t stride);
// As llama-perplexity cuts: windows follow each other, the predictions of the first half of each
// and the tokens after the last whole one do not count.
std::vector<Window> llama_cpp_windows(size_t tokens, size_t size);

// What is scored, and how.
struct PerplexityTask {
  std::vector<Token> tokens;
  std::vector<Window> windows;
  std::optional<Token> first;  // stands in the place of every window's first token
  std::string cut;             // the windows in words
};

// Sums of -log p(token) over the tokens that are scored.
struct PerplexityScore {
  uint64_t tokens = 0;
  double sum = 0;
  double squares = 0;

  double mean() const;
  double perplexity() const;
  double standard_error() const;  // the perplexity's
};
PerplexityScore score(const Generator& generator, const PerplexityTask& task, Receipt& receipt,
                      const Progress& progress);

}  // namespace tyto
