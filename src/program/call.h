// What changes from call to call of one loaded program.
#pragma once

#include <cstdint>
#include <span>

namespace tyto {

// Rows of one sequence in a call.
struct Segment {
  uint32_t first_row = 0;  // in the activation slots; of gather_rows: where the rows to keep begin
  uint32_t rows = 1;
  uint32_t position = 0;  // of the first row in its sequence
  // Where the sequence's KV cache lies: page i holds its positions from i * LaunchShape::page on.
  // Unused where a cache is one piece. What it refers to stays as it is until wait() returns.
  std::span<const uint32_t> pages = {};
  // The same for layers that attend to a window, where those have pages of their own. What stands
  // in front of all that the rows attend to is no page.
  std::span<const uint32_t> window_pages = {};

  // For a launch with such a window; 0: with none.
  std::span<const uint32_t> pages_of(uint32_t window) const {
    return window == 0 || window_pages.empty() ? pages : window_pages;
  }
  uint32_t end() const { return position + rows; }  // positions in the cache after the call
};

// Rows of one sequence or of several. Only rope_table, kv_append, attention and gather_rows tell
// sequences apart; every other kernel sees `rows` rows.
struct Call {
  uint32_t rows = 1;                    // of all segments, at most the activation slots' rows
  Segment only = {};                    // the segment of a call with one
  std::span<const Segment> batch = {};  // of a call with several; valid until wait() returns

  std::span<const Segment> segments() const {
    return batch.empty() ? std::span<const Segment>(&only, 1) : batch;
  }
};

// A call of one sequence, in a cache that is one piece or in `pages`.
inline Call call_of(uint32_t rows, uint32_t position = 0, uint32_t first_row = 0,
                    std::span<const uint32_t> pages = {}) {
  return {.rows = rows, .only = {first_row, rows, position, pages, {}}};
}

// `segments` outlive the call.
inline Call call_of(std::span<const Segment> segments) {
  if (segments.size() == 1) return {.rows = segments[0].rows, .only = segments[0]};
  Call call{.rows = 0, .batch = segments};
  for (const Segment& segment : segments) call.rows += segment.rows;
  return call;
}

}  // namespace tyto
