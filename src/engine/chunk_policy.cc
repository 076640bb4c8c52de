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
  if (token_ns_ > 0 && row_ns_ > 0)
    rows = static_cast<uint32_t>(std::min(token_ns_ * share / row_ns_, static_cast<double>(most_)));
  return std::clamp(rows, 1u, most_ - decoding);
}

void ChunkPolicy::observe(uint32_t decoding, uint32_t prompt_rows, uint64_t ns) {
  const auto took = static_cast<double>(ns);
  if (decoding > 0 && prompt_rows == 0) token_ns_ = blended(token_ns_, took);
  if (prompt_rows == 0) return;
  const double added = decoding > 0 ? took - token_ns_ : took;
  row_ns_ = blended(row_ns_, std::max(added, took * 0.01) / prompt_rows);
}

}  // namespace tyto
