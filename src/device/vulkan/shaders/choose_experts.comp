// The experts with the largest scores of a row, in ascending order, and their weights: softmax over
// the chosen ones or over all. Equal scores: the smaller id first.
//
// Constants: 0 workgroup size; 1 EXPERTS; 2 ALONE: weights are a softmax over the chosen ones.
// Grid: x = rows. `used` is at most EXPERTS. A score that is NaN makes all weights of its row NaN.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "call.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint EXPERTS = 8;
layout(constant_id = 2) const uint ALONE = 1;

layout(push_constant) uniform Push {
  Floats scores;
  Words ids;
  Floats weights;
  Words call;
  uint used;
};

shared float row_scores[EXPERTS];
shared uint is_chosen[EXPERTS];

bool is_better(uint a, uint b) {
  return row_scores[a] > row_scores[b] || (row_scores[a] == row_scores[b] && a < b);
}

void main() {
  const uint row = gl_WorkGroupID.x;
  if (row >= call_rows(call)) return;
  for (uint e = gl_LocalInvocationID.x; e < EXPERTS; e += gl_WorkGroupSize.x) {
    const float score = scores.at[row * EXPERTS + e];
    row_scores[e] = isnan(score) ? -3.4e38 : score;
  }
  barrier();
  for (uint e = gl_LocalInvocationID.x; e < EXPERTS; e += gl_WorkGroupSize.x) {
    uint better = 0;
    for (uint other = 0; other < EXPERTS; ++other) better += uint(is_better(other, e));
    is_chosen[e] = uint(better < used);
  }
  barrier();
  float largest = -3.4e38, total = 0;
  bool is_number = true;
  for (uint e = 0; e < EXPERTS; ++e) {
    largest = max(largest, row_scores[e]);
    is_number = is_number && !isnan(scores.at[row * EXPERTS + e]);
  }
  for (uint e = 0; e < EXPERTS; ++e)
    if (ALONE == 0 || is_chosen[e] != 0) total += exp(row_scores[e] - largest);
  if (!is_number) total = uintBitsToFloat(0x7fc00000u);
  for (uint e = gl_LocalInvocationID.x; e < EXPERTS; e += gl_WorkGroupSize.x) {
    if (is_chosen[e] == 0) continue;
    uint place = 0;
    for (uint other = 0; other < e; ++other) place += is_chosen[other];
    ids.at[row * used + place] = e;
    weights.at[row * used + place] = exp(row_scores[e] - largest) / total;
  }
}
