// Writes rows of k and v into the caches, at the positions of the call's segments.
//
// Constants: 0 workgroup size; 1 HEAD_DIM; 2 PAGE; 3 CACHE; 7 WINDOW.
// Grid: x = ceil(rows * kv_heads * HEAD_DIM / 2 / workgroup size).
#version 460
#extension GL_GOOGLE_include_directive : require
#include "heads.glsl"

layout(local_size_x_id = 0) in;

layout(push_constant) uniform Push {
  Floats k, v;
  Words k_cache, v_cache, call;
  uint kv_heads;
};

void main() {
  const uint head = gl_GlobalInvocationID.x / HALF, pair = gl_GlobalInvocationID.x % HALF;
  const uint row_index = head / kv_heads;
  if (row_index >= call_rows(call)) return;
  const Row row = row_at(call, row_index);
  const uint at = cache_row(call, list_of_pages(call, row.pages), kv_heads, head % kv_heads,
                            row.position);
  const uint from = head * HEAD_DIM + 2 * pair;
  store_cache_pair(k_cache, at, pair, vec2(k.at[from], k.at[from + 1]));
  store_cache_pair(v_cache, at, pair, vec2(v.at[from], v.at[from + 1]));
}
