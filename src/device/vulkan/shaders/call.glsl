// The words of a call: its size, its segments with their pages, a table of rows, one of tiles.
// device/vulkan/vulkan_device.h has the order.
#ifndef CALL_GLSL
#define CALL_GLSL
#include "buffers.glsl"

uint call_rows(Words call) {
  return call.at[0];
}

struct Segment {
  uint first_row, rows, position, pages;
};

Segment segment_at(Words call, uint index) {
  const uint at = call.at[2] + 4 * index;
  return Segment(call.at[at], call.at[at + 1], call.at[at + 2], call.at[at + 3]);
}

struct Row {
  uint segment, position, source, pages;
};

Row row_at(Words call, uint index) {
  const uint at = 8 + 4 * index;
  return Row(call.at[at], call.at[at + 1], call.at[at + 2], call.at[at + 3]);
}

// From a list of pages to the same sequence's for layers with a window.
uint window_pages(Words call) {
  return call.at[4];
}

struct Tile {
  uint segment, first_row, rows;
};

Tile tile_at(Words call, uint index) {
  const uint at = call.at[3] + 4 * index;
  return Tile(call.at[at], call.at[at + 1], call.at[at + 2]);
}
#endif
