#include "engine/chunk_policy.h"

#include <algorithm>

namespace tyto {
namespace {

// A step that something else on the machine held up must not decide alone.
double blended(double known, double seen) {
  constexpr double kWeight = 0.25;
  return known == 0 ? seen : known + kWeight * (seen - known);
}

}  // namespace

uint32_t ChunkPolicy::prompt_rows(uint32_t decoding, uint32_t prompts) const {
  if (decoding == 0) return most_;
  if (decoding >= most_) return 1;
  uint32_t rows = kFirstGuess;
  const double per_token = std::max(1.0, static_cast<double>(prompts) / decoding);
  const double share = per_token * per_token;
  const double tokens_ns = tokens_ns_of(decoding);
  if (tokens_ns > 0 && row_ns_ > 0)
    rows = static_cast<uint32_t>(std::min(tokens_ns * share / row_ns_, static_cast<double>(most_)));
  return std::clamp(rows, 1u, most_ - decoding);
}

void ChunkPolicy::observe(uint32_t decoding, uint32_t prompt_rows, uint64_t ns) {
  const auto took = static_cast<double>(ns);
  double& tokens_ns = tokens_ns_[std::min(decoding, most_)];
  if (prompt_rows == 0) {
    if (decoding > 0) tokens_ns = blended(tokens_ns, took);
    return;
  }
  // So many tokens may never have been decoded without a prompt beside them: then a row's time is
  // known better than theirs.
  if (decoding > 0 && tokens_ns == 0 && row_ns_ > 0) {
    tokens_ns = std::max(took - prompt_rows * row_ns_, took * 0.1);
    return;
  }
  const double added = took - tokens_ns;
  row_ns_ = blended(row_ns_, std::max(added, took * 0.01) / prompt_rows);
}

// Of as many tokens, or else of the next fewer that were seen.
double ChunkPolicy::tokens_ns_of(uint32_t decoding) const {
  for (uint32_t known = std::min(decoding, most_); known > 0; --known)
    if (tokens_ns_[known] > 0) return tokens_ns_[known];
  return 0;
}

}  // namespace tyto
