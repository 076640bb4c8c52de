// What comes between the projections and attention of many rows, in one dispatch: the norm of q's
// and k's heads where a model has one, rope of q (in place) and k, k and v into the caches.
//
// Constants: 0 workgroup size; 1 .. 7 as in heads.glsl; 8 TEAM: threads of one head, a power of
// two that is at most the subgroup's size.
// Grid: x = ceil((heads + 2 * kv_heads) / (workgroup size / TEAM)), y = rows.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "heads.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 8) const uint TEAM = 32;

layout(push_constant) uniform Push {
  Floats q, k, v, angles, q_norm, k_norm;
  Words k_cache, v_cache, call;
  uint heads, kv_heads;
  float eps;
};

const uint TEAMS = gl_WorkGroupSize.x / TEAM;
shared float values[TEAMS * HEAD_DIM];

float norm_scale(uint base, uint member) {
  float squares = 0;
  for (uint d = member; d < HEAD_DIM; d += TEAM) squares += values[base + d] * values[base + d];
  for (uint mask = TEAM / 2; mask > 0; mask /= 2) squares += subgroupShuffleXor(squares, mask);
  return 1 / sqrt(squares / float(HEAD_DIM) + eps);
}

void main() {
  const uint row_index = gl_WorkGroupID.y;
  if (row_index >= call_rows(call)) return;
  const Row row = row_at(call, row_index);
  const uint team = gl_LocalInvocationID.x / TEAM, member = gl_LocalInvocationID.x % TEAM;
  const uint head = gl_WorkGroupID.x * TEAMS + team, base = team * HEAD_DIM;
  const bool is_q = head < heads, is_k = !is_q && head < heads + kv_heads;
  const bool present = head < heads + 2 * kv_heads;
  const uint kv_head = is_k ? head - heads : head - heads - kv_heads;
  const uint from = (is_q ? row_index * heads + head : row_index * kv_heads + kv_head) * HEAD_DIM;

  for (uint d = member; present && d < HEAD_DIM; d += TEAM)
    values[base + d] = is_q ? q.at[from + d] : is_k ? k.at[from + d] : v.at[from + d];
  barrier();
  float scale = 1;
  if (NORM != 0) {
    scale = norm_scale(base, member);
    barrier();
    for (uint d = member; (is_q || is_k) && d < HEAD_DIM; d += TEAM)
      values[base + d] *= scale * (is_q ? q_norm.at[d] : k_norm.at[d]);
    barrier();
  }
  if (!present) return;

  const uint pages = list_of_pages(call, row.pages);
  for (uint pair = member; pair < HALF; pair += TEAM) {
    vec2 value = vec2(values[base + 2 * pair], values[base + 2 * pair + 1]);
    if (is_q || is_k)
      for (uint i = 0; i < 2; ++i) {
        const uint d = 2 * pair + i;
        if (d >= ROTATED) continue;
        const vec2 turn = rope_cos_sin(angles, row_index, rope_index(d));
        value[i] = value[i] * turn.x + rope_sign(d) * values[base + rope_partner(d)] * turn.y;
      }
    if (is_q) {
      q.at[from + 2 * pair] = value.x;
      q.at[from + 2 * pair + 1] = value.y;
    } else {
      const uint at = cache_row(call, pages, kv_heads, kv_head, row.position);
      if (is_k) store_cache_pair(k_cache, at, pair, value);
      else store_cache_pair(v_cache, at, pair, value);
    }
  }
}
