// Kernels with a state: rows of a sequence one after the other, values and heads beside each other.
#pragma once

#include "device/cpu/operations.h"

namespace tyto::cpu {

// Rows of one segment between two states: the state in front of them, where there is one, and where
// that behind them goes.
struct StateRun {
  uint32_t first_row = 0;  // in the activation slots
  uint32_t rows = 0;
  uint32_t from = kNoState;
  uint32_t to = kNoState;
};

// The runs of a segment in order: one, and one more for each state that is kept inside of it.
template <typename Visit>
void for_each_run(const Segment& segment, const Visit& visit) {
  StateRun run{.first_row = segment.first_row, .from = segment.state_from};
  uint32_t done = 0;
  const auto go_to = [&](uint32_t rows, uint32_t state) {
    run.rows = rows - done;
    run.to = state;
    visit(run);
    run.first_row += run.rows;
    run.from = state;
    done = rows;
  };
  for (const KeptState& kept : segment.kept) go_to(kept.rows, kept.state);
  go_to(segment.rows, segment.state_to);
}

void causal_conv(const Operation& op);
void delta_rule(const Operation& op);
void mamba2(const Operation& op);

}  // namespace tyto::cpu
