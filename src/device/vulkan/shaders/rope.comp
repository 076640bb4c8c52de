// Turns each head of x by its row of a table, into y, which may be x.
//
// Constants: 0 workgroup size; 1 HEAD_DIM; 4 PAIRS; 6 ROTATED.
// `table_cols`: ROTATED, or heads * HEAD_DIM where each head has a row of its own.
// Grid: x = ceil(rows * heads * ROTATED / 2 / workgroup size). What is not turned stays in x: y is
// x unless ROTATED is HEAD_DIM.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "heads.glsl"

layout(local_size_x_id = 0) in;

layout(push_constant) uniform Push {
  Floats x, table, y;
  Words call;
  uint heads, table_cols;
};

const uint TURNED = ROTATED / 2;

void main() {
  const uint head = gl_GlobalInvocationID.x / TURNED, index = gl_GlobalInvocationID.x % TURNED;
  const uint row = head / heads;
  if (row >= call_rows(call)) return;
  const uint own = table_cols == ROTATED ? 0 : head % heads * HEAD_DIM;
  const float cosine = table.at[row * table_cols + own + index];
  const float sine = table.at[row * table_cols + own + TURNED + index];
  const uint first = head * HEAD_DIM + (PAIRS != 0 ? 2 * index : index);
  const uint second = first + (PAIRS != 0 ? 1 : TURNED);
  const float a = x.at[first], b = x.at[second];
  y.at[first] = a * cosine - b * sine;
  y.at[second] = b * cosine + a * sine;
}
