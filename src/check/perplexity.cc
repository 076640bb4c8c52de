#include "check/perplexity.h"

#include <algorithm>
#include <cmath>

#include "trace/receipt.h"

namespace tyto {
namespace {

// -log p(token), with the normaliser in double.
double surprise(std::span<const float> logits, Token token) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (float logit : logits) total += std::exp(static_cast<double>(logit) - largest);
  return std::log(total) + largest - logits[static_cast<size_t>(token)];
}

void add(PerplexityScore& score, double value) {
  ++score.tokens;
  score.sum += value;
  score.squares += value * value;
}

}  // namespace

std::vector<Window> overlapping_windows(size_t tokens, size_t size, size_t stride) {
  std::vector<Window> windows;
  size_t scored_to = 1;
  for (size_t begin = 0; scored_to < tokens; begin += stride) {
    windows.push_back({begin, std::min(begin + size, tokens), scored_to});
    scored_to = windows.back().end;
  }
  return windows;
}

std::vector<Window> llama_cpp_windows(size_t tokens, size_t size) {
  std::vector<Window> windows;
  for (size_t begin = 0; begin + size <= tokens; begin += size)
    windows.push_back({begin, begin + size, begin + size / 2 + 1});
  return windows;
}

double PerplexityScore::mean() const {
  return sum / static_cast<double>(tokens);
}

double PerplexityScore::perplexity() const {
  return std::exp(mean());
}

double PerplexityScore::standard_error() const {
  const auto count = static_cast<double>(tokens);
  const double variance = std::max(0.0, squares / count - mean() * mean());
  return perplexity() * std::sqrt(variance / std::max(1.0, count - 1));
}

PerplexityScore score(const Generator& generator, const PerplexityTask& task, Receipt& receipt,
                      const Progress& progress) {
  PerplexityScore result;
  uint64_t total = 0, done = 0;
  for (const Window& window : task.windows) total += window.end - window.begin;
  const auto show = [&](std::string_view, uint64_t of_window, uint64_t) {
    if (progress) progress("perplexity", done + of_window, total);
  };
  show("", 0, 0);
  for (const Window& window : task.windows) {
    std::vector<Token> tokens(task.tokens.begin() + static_cast<ptrdiff_t>(window.begin),
                              task.tokens.begin() + static_cast<ptrdiff_t>(window.end));
    if (task.first) tokens.front() = *task.first;
    const auto add_surprise = [&](uint32_t position, std::span<const float> logits) {
      const size_t next = window.begin + position + 1;
      if (next >= window.scored_from && next < window.end)
        add(result, surprise(logits, task.tokens[next]));
    };
    tyto::add(receipt, read_logits(generator, tokens, add_surprise, show));
    done += tokens.size();
  }
  return result;
}

}  // namespace tyto
