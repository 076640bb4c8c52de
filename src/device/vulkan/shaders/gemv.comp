// variants: gemv_bf16=-DBF16; gemv_f16=-DF16; gemv_f32=-DF32; gemv_q8_0=-DQ8_0; gemv_q4_0=-DQ4_0; gemv_q4_k=-DQ4_K; gemv_q6_k=-DQ6_K; gemv_i8=-DI8; gemv_q4_1=-DQ4_1; gemv_q5_0=-DQ5_0; gemv_q5_1=-DQ5_1; gemv_q2_k=-DQ2_K; gemv_q3_k=-DQ3_K; gemv_q5_k=-DQ5_K; gemv_iq4_nl=-DIQ4_NL; gemv_iq4_xs=-DIQ4_XS; gemv_mxfp4=-DMXFP4
// y = W x for a few rows of x: decode. Weights are read once, and sums are those of floats.
//
// A workgroup makes OUTPUTS rows of a result (one workgroup per group of rows); all its threads share
// the work along K, so that a thread has many reads under way and needs x for all of its rows only
// once. Reading a matrix takes little longer than starting a dispatch, so nothing waits for anything
// before weights are asked for: the sum of squares for the norm is gathered beside the products and
// applied at the end. Specialization constants: gemv_frame.glsl.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require

#define TURNS 1
#include "weights.glsl"
#include "gemv_frame.glsl"
#include "gemv_products.glsl"

// The sum over the experts of a row: the units of one after those of the other.
void mix(Target to, uint count, inout float sums[SUMS]) {
  const uint row = gl_WorkGroupID.y;
  for (uint i = gl_LocalInvocationID.x; i < n1 * count; i += gl_WorkGroupSize.x) {
    const uint choice = i / count, index = i % count;
    to.base = expert_base(choice);
    Unit units[STREAMS];
    read_units(to, index, units);
    const float weight = y1.at[row * n1 + choice];
    Slice slice;
    read_groups(x, row * n1 + choice, index, slice.x);
    sum_slice(slice);
    [[unroll]] for (uint j = 0; j < STREAMS; ++j) sums[j * ROWS] += weight * product(units[j], index, slice);
  }
}

void main() {
  if (EXPERTS != 0 && gl_WorkGroupID.y >= call.at[0] * (EXPERTS == CHOSEN ? n1 : 1)) return;
  Target to = target(gl_WorkGroupID.x);
  const uint rows = ROWS == 1u ? 1u : call.at[0];
  uint source[ROWS];
  float square[ROWS], sums[SUMS];
  [[unroll]] for (uint t = 0; t < ROWS; ++t) {
    source[t] = source_row(t, rows);
    square[t] = 0.0;
  }
  [[unroll]] for (uint i = 0; i < SUMS; ++i) sums[i] = 0.0;

  const uint count = unit_count(k_values);
  if (EXPERTS == MIXED) mix(to, count, sums);
  for (uint index = gl_LocalInvocationID.x; EXPERTS != MIXED && index < count;
       index += gl_WorkGroupSize.x) {
    Unit units[STREAMS];
    read_units(to, index, units);
    vec4 gains[GROUPS];
    if (NORM != 0u) read_groups(norm, 0u, index, gains);
    [[unroll]] for (uint t = 0; t < ROWS; ++t) {
      Slice slice;
      read_groups(x, source[t], index, slice.x);
      if (NORM != 0u) {
        [[unroll]] for (uint g = 0; g < GROUPS; ++g) {
          square[t] += dot(slice.x[g], slice.x[g]);
          slice.x[g] *= gains[g];
        }
      }
      sum_slice(slice);
      [[unroll]] for (uint i = 0; i < STREAMS; ++i) sums[i * ROWS + t] += product(units[i], index, slice);
    }
  }
  [[unroll]] for (uint t = 0; t < ROWS; ++t) share_squares(t, square[t]);
  finish_group(to, 0u, rows, sums);
}
