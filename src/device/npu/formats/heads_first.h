// Activations head by head, as some of MLIR-AIR's attention kernels want them: `run` columns of
// every row, then the next `run` columns of every row (AirLayout::heads_first).
#pragma once

#include <cstdint>

#include "base/thread_pool.h"

namespace tyto {

struct HeadsFirst {
  uint64_t seq = 0;  // rows that the kernel was compiled for
  uint64_t cols = 0;
  uint64_t run = 0;

  uint64_t values() const { return seq * cols; }
};

// The first `rows` rows; those behind them are cleared, as no prompt's values may stay there.
void to_heads_first(const HeadsFirst& form, const uint16_t* by_row, uint64_t rows,
                    uint16_t* by_head, ThreadPool& pool);
void from_heads_first(const HeadsFirst& form, const uint16_t* by_head, uint64_t rows,
                      uint16_t* by_row, ThreadPool& pool);

}  // namespace tyto
