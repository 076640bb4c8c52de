// One value at a time: z = x + y (in place where z is x), z = gate(x) * y, rows of x by the row
// table's sources, x in another type, z = factor * x, z = factor * tanh(x / factor).
//
// Constants: 0 workgroup size; 1 OPERATION, below; 2 IN, the type of x and y (CAST only; F32 for
// all others); 3 OUT, the type of z, F32 for GATHER_ROWS; 4 ACTIVATION of a gate.
// Grid: x = ceil(ceil(rows * cols / 4) / workgroup size), for GATHER_ROWS rows * ceil(cols / 4) /
// workgroup size. A 16-bit array with an odd number of values ends in a whole word.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "call.glsl"
#include "gates.glsl"

layout(local_size_x_id = 0) in;
const uint ADD = 0, GATE = 1, GATHER_ROWS = 2, CAST = 3, SCALE = 4, SOFT_CAP = 5;
layout(constant_id = 1) const uint OPERATION = ADD;
layout(constant_id = 2) const uint IN = F32;
layout(constant_id = 3) const uint OUT = F32;
layout(constant_id = 4) const uint ACTIVATION = SILU;

layout(push_constant) uniform Push {
  Floats x, y;
  Words z, call;
  uint cols;
  float factor;
};

vec4 load_any(uint index, uint count) {
  if (IN == F32) return load_row_quad(x, 0, index, count);
  const vec2 low = unpack16(Words(x).at[index / 2], IN);
  return vec4(low, index + 2 < count ? unpack16(Words(x).at[index / 2 + 1], IN) : vec2(0));
}

void gather_rows() {
  const uint quads = (cols + 3) / 4;
  const uint row = gl_GlobalInvocationID.x / quads, index = gl_GlobalInvocationID.x % quads * 4;
  if (row >= call_rows(call)) return;
  const vec4 value = load_row_quad(x, row_at(call, row).source * cols, index, cols);
  store_row_quad(z, row * cols, index, cols, value, F32);
}

void main() {
  if (OPERATION == GATHER_ROWS) {
    gather_rows();
    return;
  }
  const uint count = call_rows(call) * cols, index = 4 * gl_GlobalInvocationID.x;
  if (index >= count) return;
  vec4 value = load_any(index, count);
  if (OPERATION == ADD) value += load_row_quad(y, 0, index, count);
  if (OPERATION == GATE) value = gated(ACTIVATION, value, load_row_quad(y, 0, index, count));
  if (OPERATION == SCALE) value *= factor;
  if (OPERATION == SOFT_CAP) value = capped(value, factor);
  store_row_quad(z, 0, index, count, value, OUT);
}
