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
  if (decoding == 0) return rows_alone();
  if (decoding >= most_) return 1;
  const double tokens_ns = tokens_ns_[decoding];
  if (tokens_ns == 0 || steps_beside_ >= kMostBeside) return 0;
  uint32_t rows = kKernelRows;  // before anything is known
  const double per_token = std::max(1.0, static_cast<double>(prompts) / decoding);
  if (row_ns_ > 0)
    rows = static_cast<uint32_t>(
        std::min(tokens_ns * per_token * per_token / row_ns_, static_cast<double>(most_)));
  return std::clamp(rows, 1u, most_ - decoding);
}

uint32_t ChunkPolicy::rows_alone() const {
  if (!passes_agree_) return most_;
  const uint32_t least = std::min(kLeastAlone, most_);
  if (row_ns_ == 0) return least;
  const auto rows = static_cast<uint32_t>(std::min(kAloneNs / row_ns_, static_cast<double>(most_)));
  return std::max(least, rows < most_ ? rows / kKernelRows * kKernelRows : most_);
}

void ChunkPolicy::observe(uint32_t decoding, uint32_t prompt_rows, uint64_t ns) {
  const auto took = static_cast<double>(ns);
  double& tokens_ns = tokens_ns_[std::min(decoding, most_)];
  if (prompt_rows == 0) {
    if (decoding > 0) tokens_ns = blended(tokens_ns, took);
    steps_beside_ = 0;
    return;
  }
  if (decoding > 0) ++steps_beside_;
  row_ns_ = blended(row_ns_, std::max(took - tokens_ns, took * 0.01) / prompt_rows);
}

}  // namespace tyto
