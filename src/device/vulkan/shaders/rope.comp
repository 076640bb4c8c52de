// Turns each head of x by its row of a table, into y, which may be x.
//
// Constants: 0 workgroup size; 1 HEAD_DIM; 4 PAIRS.
// `table_cols`: HEAD_DIM, or heads * HEAD_DIM where each head has a row of its own.
// Grid: x = ceil(rows * heads * HEAD_DIM / 2 / workgroup size).
#version 460
#extension GL_GOOGLE_include_directive : require
#include "heads.glsl"

layout(local_size_x_id = 0) in;

layout(push_constant) uniform Push {
  Floats x, table, y;
  Words call;
  uint heads, table_cols;
};

void main() {
  const uint head = gl_GlobalInvocationID.x / HALF, index = gl_GlobalInvocationID.x % HALF;
  const uint row = head / heads;
  if (row >= call_rows(call)) return;
  const uint own = table_cols == HEAD_DIM ? 0 : head % heads * HEAD_DIM;
  const float cosine = table.at[row * table_cols + own + index];
  const float sine = table.at[row * table_cols + own + HALF + index];
  const uint first = head * HEAD_DIM + (PAIRS != 0 ? 2 * index : index);
  const uint second = first + (PAIRS != 0 ? 1 : HALF);
  const float a = x.at[first], b = x.at[second];
  y.at[first] = a * cosine - b * sine;
  y.at[second] = b * cosine + a * sine;
}
