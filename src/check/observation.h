// What the dispatches of a forward pass leave behind, copied out for whoever watches it. A dispatch
// shows what leaves it: values that a later dispatch reads, outputs, and rows of the KV cache.
// Everything else stays inside and is hidden.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "llama/forward.h"
#include "program/stitch.h"

namespace tyto {

// A launch's result, or rows of a cache.
struct StepKey {
  Role role = Role::none;
  uint16_t layer = kNoLayer;
  auto operator<=>(const StepKey&) const = default;
};

// Rows of one step's result, for consecutive positions. A copy: it stays as it was when the
// dispatch completed.
struct Observed {
  StepKey step;
  uint32_t position = 0;
  uint32_t rows = 0;
  std::vector<float> values = {};  // [rows, width], heads in the checkpoint's order
};

struct ObservedDispatch {
  std::string label;
  std::string device;
  uint32_t position = 0;
  std::vector<Observed> results = {};
  std::vector<StepKey> hidden = {};  // steps that happened inside and left nothing to see
};

// Copies what can be seen of a dispatch of one sequence.
ObservedDispatch observe(const DispatchView& dispatch);

// What can be seen of a piece when it has completed.
struct VisibleSlot {
  uint16_t slot = 0;  // of the piece's program
  StepKey step;       // that wrote it last
};
struct Visibility {
  std::vector<VisibleSlot> visible = {};
  std::vector<StepKey> hidden = {};
};

// Of pieces[index]. `residual_goes_on`: later programs read the residual stream.
Visibility visibility(const std::vector<Piece>& pieces, size_t index, bool residual_goes_on);

// A token's heads [head][half][2] from what a device that rotates halves has: [head][2][half].
void put_in_pairs(std::vector<float>& heads, uint32_t head_dim);

}  // namespace tyto
