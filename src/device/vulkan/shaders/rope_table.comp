// A row of cosines, then sines, of position * frequency, times `factor`, for each row of the call.
//
// Constants: 0 workgroup size; 1 HEAD_DIM: twice the number of frequencies.
// Grid: x = ceil(rows * HEAD_DIM / 2 / workgroup size).
#version 460
#extension GL_GOOGLE_include_directive : require
#include "heads.glsl"

layout(local_size_x_id = 0) in;

layout(push_constant) uniform Push {
  Floats frequencies, table;
  Words call;
  float factor;
};

void main() {
  const uint row = gl_GlobalInvocationID.x / HALF, index = gl_GlobalInvocationID.x % HALF;
  if (row >= call_rows(call)) return;
  const vec2 turn = factor * cos_sin(float(row_at(call, row).position) * frequencies.at[index]);
  table.at[row * HEAD_DIM + index] = turn.x;
  table.at[row * HEAD_DIM + HALF + index] = turn.y;
}
