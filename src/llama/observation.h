// What the dispatches of a pipeline leave behind, copied out for whoever watches it. A dispatch
// shows what leaves it: values that a later dispatch reads, outputs, and rows of the KV cache.
// Everything else stays inside and is hidden.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "program/stitch.h"

namespace tyto {

// Rows of one step's result, for consecutive positions. A copy: it stays as it was when the
// dispatch completed.
struct Observed {
  std::string step;  // "L03.q_rope"; of the cache "L03.k_cache", "L03.v_cache"
  uint32_t position = 0;
  uint32_t rows = 0;
  std::vector<float> values = {};  // [rows, width], heads in the checkpoint's order
};

struct ObservedDispatch {
  std::string name;
  std::string device;
  uint32_t position = 0;
  std::vector<Observed> results = {};
  std::vector<std::string> hidden = {};  // steps that happened inside and left nothing to see
};

using Observer = std::function<void(const ObservedDispatch&)>;

// What can be seen of a piece when it has completed.
struct VisibleSlot {
  uint16_t slot = 0;  // of the piece's program
  std::string step;   // that wrote it last
};
struct Visibility {
  std::vector<VisibleSlot> visible = {};
  std::vector<std::string> hidden = {};
};

// Of pieces[index]. `residual` names the slot that later programs go on with; empty: none.
Visibility visibility(const std::vector<Piece>& pieces, size_t index, const std::string& residual);

// A token's heads [head][half][2] from what a device that rotates halves has: [head][2][half].
void put_in_pairs(std::vector<float>& heads, uint32_t head_dim);

}  // namespace tyto
