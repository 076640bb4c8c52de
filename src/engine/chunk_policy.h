// How many rows of prompts may run beside tokens that somebody waits for.
#pragma once

#include <cstdint>
#include <vector>

namespace tyto {

// Learns from steps how long tokens take and what a row of a prompt adds, and keeps a step with
// both under twice the time of one without prompts. Where more people wait for their prompts than
// for tokens, prompts get the square of that more: a prompt that is done shortens the wait of all
// the others, and tokens are the cheaper the more of them are decoded together. The results do not
// depend on it, only who waits how long.
class ChunkPolicy {
 public:
  // `most`: rows of one step.
  explicit ChunkPolicy(uint32_t most) : most_(most), tokens_ns_(most + 1) {}

  // Rows of all `prompts` for a step that also decodes `decoding` tokens; at least one.
  uint32_t prompt_rows(uint32_t decoding, uint32_t prompts) const;
  void observe(uint32_t decoding, uint32_t prompt_rows, uint64_t ns);

 private:
  double tokens_ns_of(uint32_t decoding) const;

  static constexpr uint32_t kFirstGuess =
      16;  // before anything is known: what kernels take at once

  uint32_t most_;
  std::vector<double> tokens_ns_;  // [tokens decoded together], without prompts; 0: not known
  double row_ns_ = 0;              // that a prompt's row adds
};

}  // namespace tyto
