// y = the sum of weights[i] * x[i] over the `used` experts of each row; ADDS: y grows by it.
//
// Constants: 0 workgroup size; 1 ADDS.
// Grid: x = ceil(ceil(cols / 4) / workgroup size), y = rows.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "call.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint ADDS = 0;

layout(push_constant) uniform Push {
  Floats x, weights;
  Words y, call;
  uint cols, used;
};

void main() {
  const uint row = gl_WorkGroupID.y, index = 4 * gl_GlobalInvocationID.x;
  if (row >= call_rows(call) || index >= cols) return;
  vec4 sum = vec4(0);
  for (uint i = 0; i < used; ++i)
    sum += weights.at[row * used + i] * load_row_quad(x, (row * used + i) * cols, index, cols);
  if (ADDS != 0) sum += load_row_quad(Floats(y), row * cols, index, cols);
  store_row_quad(y, row * cols, index, cols, sum, F32);
}
