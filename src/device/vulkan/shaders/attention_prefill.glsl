// What both kernels for attention of many rows share: a workgroup has TILE rows of one sequence for
// GROUP heads of one KV head, and goes over the keys of its sequence in blocks, the softmax's
// largest score and sum running along.
//
// Push block and constants: 0 workgroup size; 1 .. 3 and 7 as in heads.glsl; 8 OUT, the type of y;
// 9 GROUP: heads / kv_heads or a divisor of it; 10 TILE; 11 KEYS: of a block; 14 PARTS: workgroups
// that share a tile of the call's tile table, whose tiles have at most PARTS * TILE rows; 15 CAP of
// the scores, 0: none; 16 SINKS: each head's softmax has one more term. q is
// rotated, all rows are in the caches.
// Grid: x = heads / GROUP, y = tiles * PARTS.
#include "gates.glsl"
#include "heads.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 8) const uint OUT = F32;
layout(constant_id = 9) const uint GROUP = 1;
layout(constant_id = 10) const uint TILE = 64;
layout(constant_id = 11) const uint KEYS = 64;
layout(constant_id = 14) const uint PARTS = 1;
layout(constant_id = 15) const float CAP = 0;
layout(constant_id = 16) const uint SINKS = 0;

layout(push_constant) uniform Push {
  Floats q;
  Words k_cache, v_cache, y;
  Floats sinks;
  Words call;
  uint heads, kv_heads;
  float q_factor;
};

const float LOWEST = -3.0e38;  // less than any score, and finite: its weight is 0, not NaN

const float LOG2_E = 1.4426950408889634;

// Scores are powers of two: exp(x) = exp2(x * log2(e)).
float score_scale() {
  return q_factor * LOG2_E / sqrt(float(HEAD_DIM));
}

// A workgroup's part of a call.
struct Work {
  Tile tile;
  uint position;  // where the tile's first row stands
  uint pages, keys, kv_head;
  uint first_key;  // that its first row sees
};

// Tiles with most keys begin first. A workgroup may find no rows.
Work work_of_workgroup() {
  const uint part = gl_NumWorkGroups.y - 1 - gl_WorkGroupID.y;
  Tile tile = tile_at(call, part / PARTS);
  const uint skipped = min(part % PARTS * TILE, tile.rows);
  tile.first_row += skipped;
  tile.rows = min(tile.rows - skipped, TILE);
  const Segment segment = segment_at(call, tile.segment);
  const uint position = segment.position + tile.first_row - segment.first_row;
  const uint kv_head = gl_WorkGroupID.x * GROUP / (heads / kv_heads);
  return Work(tile, position, list_of_pages(call, segment.pages), position + tile.rows, kv_head,
              first_seen(position));
}

// Rows beyond the tile's are its last one again; their results are not written.
uint q_base(Work work, uint head, uint row) {
  const uint of_call = work.tile.first_row + min(row, work.tile.rows - 1);
  return (of_call * heads + gl_WorkGroupID.x * GROUP + head) * HEAD_DIM;
}

void write_pair(Work work, uint head, uint row, uint d, vec2 value) {
  if (row >= work.tile.rows || d >= HEAD_DIM) return;
  const uint at = q_base(work, head, row) + d;
  if (OUT == F32) {
    y.at[at] = floatBitsToUint(value.x);
    y.at[at + 1] = floatBitsToUint(value.y);
  } else {
    y.at[at / 2] = pack16(saturated(value, OUT), OUT);
  }
}

// Whether the tile's row at `position` attends to `key`.
bool sees(uint position, uint key) {
  return key <= position && (WINDOW == 0 || key + WINDOW > position);
}

// What a head's sink adds to a sum of weights whose largest score is `largest`.
float sink_weight(uint head, float largest) {
  return SINKS == 0 ? 0 : exp2(LOG2_E * sinks.at[gl_WorkGroupID.x * GROUP + head] - largest);
}

float bounded_score(float score) {
  return CAP != 0 ? capped(score, CAP * LOG2_E) : score;
}

// The row in the cache of a key, of those that any row of the tile sees.
uint key_row(Work work, uint key) {
  return cache_row(call, work.pages, kv_heads, work.kv_head,
                   clamp(key, work.first_key, work.keys - 1));
}
