// How many rows of prompts may run in a step.
#pragma once

#include <cstdint>
#include <vector>

namespace tyto {

// Learns from steps how long tokens take and what a row of a prompt adds, and keeps a step with
// both under twice the time of one without prompts. Where more requests wait for their prompts than
// for tokens, prompts get the square of that more: a prompt that is done shortens the wait of all
// the others, and tokens are the cheaper the more of them are decoded together. A step of prompts
// alone takes a tenth of a second, for a request that comes meanwhile waits until it has ended. The
// results do not depend on it, only who waits how long.
class ChunkPolicy {
 public:
  static constexpr uint32_t kLeastAlone = 32;  // rows; fewer would read the weights too often

  // `most`: rows of one step. Where the bits of a prompt depend on its passes a prompt alone is not
  // cut by the clock.
  ChunkPolicy(uint32_t most, bool passes_agree)
      : most_(most), passes_agree_(passes_agree), tokens_ns_(most + 1) {}

  // Rows of all `prompts` for a step that also decodes `decoding` tokens. None where a
  // step without prompts has to show what `decoding` tokens take: rows that are blamed for the
  // tokens' time would become ever fewer.
  uint32_t prompt_rows(uint32_t decoding, uint32_t prompts) const;
  void observe(uint32_t decoding, uint32_t prompt_rows, uint64_t ns);

 private:
  uint32_t rows_alone() const;

  static constexpr uint32_t kKernelRows = 16;  // that kernels take at once
  static constexpr double kAloneNs = 100'000'000;
  static constexpr uint32_t kMostBeside = 16;  // steps of tokens and prompts in a row

  uint32_t most_;
  bool passes_agree_;
  std::vector<double> tokens_ns_;  // [tokens decoded together], without prompts; 0: not known
  uint32_t steps_beside_ = 0;      // with tokens and prompts, since one with tokens alone
  double row_ns_ = 0;              // that a prompt's row adds; 0: not known
};

}  // namespace tyto
