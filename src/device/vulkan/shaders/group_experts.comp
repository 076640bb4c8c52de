// The choices of a call's rows by expert, for products of many rows: a table of tiles, each of at
// most TILE choices of one expert, and the list of choices that they are of. Choice c is that of
// row c / used. Choices of an expert follow each other in any order: nothing depends on it.
//
// Constants: 0 workgroup size; 1 EXPERTS; 2 TILE.
// `plan`: `tiles` entries of four words, expert, where its choices begin in the list, how many they
// are, 0; then the list. Tiles that are not needed have no choices.
// Grid: one workgroup.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "call.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint EXPERTS = 8;
layout(constant_id = 2) const uint TILE = 64;

layout(push_constant) uniform Push {
  Words ids, plan, call;
  uint used, tiles;
};

shared uint counts[EXPERTS];
shared uint next[EXPERTS];        // place in the list
shared uint first_tile[EXPERTS + 1];

void main() {
  const uint choices = call_rows(call) * used, thread = gl_LocalInvocationID.x;
  for (uint e = thread; e < EXPERTS; e += gl_WorkGroupSize.x) counts[e] = 0;
  barrier();
  for (uint c = thread; c < choices; c += gl_WorkGroupSize.x)
    atomicAdd(counts[min(ids.at[c], EXPERTS - 1)], 1);
  barrier();
  for (uint e = thread; e <= EXPERTS; e += gl_WorkGroupSize.x) {
    uint before = 0, tile = 0;
    for (uint other = 0; other < e; ++other) {
      before += counts[other];
      tile += (counts[other] + TILE - 1) / TILE;
    }
    if (e < EXPERTS) next[e] = before;
    first_tile[e] = tile;
  }
  barrier();
  for (uint e = thread; e < EXPERTS; e += gl_WorkGroupSize.x)
    for (uint i = 0; i * TILE < counts[e]; ++i) {
      const uint at = 4 * (first_tile[e] + i);
      plan.at[at] = e;
      plan.at[at + 1] = next[e] + i * TILE;
      plan.at[at + 2] = min(counts[e] - i * TILE, TILE);
    }
  for (uint tile = first_tile[EXPERTS] + thread; tile < tiles; tile += gl_WorkGroupSize.x)
    plan.at[4 * tile + 2] = 0;
  barrier();
  for (uint c = thread; c < choices; c += gl_WorkGroupSize.x)
    plan.at[4 * tiles + atomicAdd(next[min(ids.at[c], EXPERTS - 1)], 1)] = c;
}
