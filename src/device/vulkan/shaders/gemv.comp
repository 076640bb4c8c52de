// variants: gemv_bf16=-DBF16; gemv_f16=-DF16; gemv_f32=-DF32; gemv_q8_0=-DQ8_0; gemv_q4_0=-DQ4_0; gemv_q4_k=-DQ4_K; gemv_q6_k=-DQ6_K; gemv_i8=-DI8
// y = W x for a few rows of x: decode. Weights are read once.
//
// A workgroup makes OUTPUTS rows of a result; all its threads share the work along K, so that a
// thread has many reads under way and needs x for all of its rows only once. Reading a matrix takes
// less time than starting a dispatch, so nothing waits for anything before weights are asked for: the
// sum of squares for the norm is gathered beside the products and applied at the end.
//
// Specialization constants:
//   0 workgroup size
//   1 ROWS     rows of x, at most; as many as the call says are stored
//   2 OUTPUTS  rows of W of a workgroup
//   3 MODE     0 y0|y1|y2 = W0|W1|W2 x; 1 y0 += W0 x; 2 y0 = silu(W0 x) * (W1 x)
//   4 NORM     1: x is RMS-normalised, with weights `norm`
//   5 GATHER   1: row t of x is the one that the call's table of rows names
//   6 BIAS     1: b0|b1|b2 are added
// Workgroups: in mode 0 the sum of ceil(n / OUTPUTS) over the matrices, else ceil(n0 / OUTPUTS).
// Order of sums: by workgroup size, subgroup size and the weights' form alone.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require

#include "weights.glsl"
#include "gemv_units.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint ROWS = 1;
layout(constant_id = 2) const uint OUTPUTS = 4;
layout(constant_id = 3) const uint MODE = 0;
layout(constant_id = 4) const uint NORM = 0;
layout(constant_id = 5) const uint GATHER = 0;
layout(constant_id = 6) const uint BIAS = 0;

const uint STORE = 0, ADD = 1, SWIGLU = 2;

layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Fours { vec4 at[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Result { float at[]; };

layout(push_constant) uniform Push {
  Floats x;
  Words call;
  Floats norm;
  Words w0, w1, w2;
  Result y0, y1, y2;
  Floats b0, b1, b2;
  uint k_values, n0, n1, n2;
  float eps;
  uint flags;
};

const uint STREAMS = MODE == SWIGLU ? 2 * OUTPUTS : OUTPUTS;  // rows of weights read side by side
const uint SUMS = STREAMS * ROWS + NORM * ROWS;
shared float partial[SUMS * (gl_WorkGroupSize.x / 4)];  // [sum][subgroup]; none is narrower than 4

// The matrix whose rows this workgroup makes.
struct Target {
  Words w;
  Result y;
  Floats b;
  uint rows, first;
};

Target target() {
  uint group = gl_WorkGroupID.x;
  if (MODE != STORE) return Target(w0, y0, b0, n0, group * OUTPUTS);
  const uint groups0 = (n0 + OUTPUTS - 1) / OUTPUTS, groups1 = (n1 + OUTPUTS - 1) / OUTPUTS;
  if (group < groups0) return Target(w0, y0, b0, n0, group * OUTPUTS);
  group -= groups0;
  if (group < groups1) return Target(w1, y1, b1, n1, group * OUTPUTS);
  return Target(w2, y2, b2, n2, (group - groups1) * OUTPUTS);
}

// Four values of a row. Rows of blocks are whole, others end anywhere: then zeros follow, and rows
// begin at multiples of 16 bytes only if K allows it.
vec4 four_at(Floats values, uint row, uint k) {
#if defined(HAS_BLOCKS)
  return Fours(values).at[(row * k_values + k) / 4u];
#else
  if ((k_values & 3u) == 0u) return k < k_values ? Fours(values).at[(row * k_values + k) / 4u] : vec4(0.0);
  vec4 result = vec4(0.0);
  for (uint i = 0; i < 4; ++i)
    if (k + i < k_values) result[i] = values.at[row * k_values + k + i];
  return result;
#endif
}

// The values that a unit is multiplied by.
void read_groups(Floats values, uint row, uint index, out vec4 groups[GROUPS]) {
  [[unroll]] for (uint g = 0; g < GROUPS; ++g) groups[g] = four_at(values, row, unit_k(index, g));
}

void read_units(Target to, uint index, out Unit units[STREAMS]) {
  [[unroll]] for (uint i = 0; i < STREAMS; ++i) {
    const uint row = min(to.first + i % OUTPUTS, to.rows - 1u);
    if (i < OUTPUTS) units[i] = read_unit(to.w, to.rows, k_values, row, index);
    else units[i] = read_unit(w1, n1, k_values, row, index);
  }
}

// Sum number `index` over the workgroup's subgroups.
float total(uint index) {
  float result = 0.0;
  for (uint i = 0; i < gl_NumSubgroups; ++i) result += partial[index * gl_NumSubgroups + i];
  return result;
}

void finish(Target to, uint output_row, uint t) {
  const uint row = to.first + output_row;
  const float factor = NORM == 0u ? 1.0 : inversesqrt(total(STREAMS * ROWS + t) / float(k_values) + eps);
#if defined(I8)
  const float scale = factor * Floats(to.w).at[plane_words(to.rows * (padded(k_values) / 4u)) + row];
#else
  const float scale = factor;
#endif
  float value = total(output_row * ROWS + t) * scale;
  if (BIAS != 0u) value += to.b.at[row];
  if (MODE == SWIGLU) {
#if defined(I8)
    const float up_scale = factor * Floats(w1).at[plane_words(n1 * (padded(k_values) / 4u)) + row];
#else
    const float up_scale = factor;
#endif
    float up = total((OUTPUTS + output_row) * ROWS + t) * up_scale;
    if (BIAS != 0u) up += b1.at[row];
    value = value / (1.0 + exp(-value)) * up;
  }
  const uint at = t * to.rows + row;
  if (MODE == ADD) value += to.y.at[at];
  to.y.at[at] = value;
}

void main() {
  Target to = target();
  const uint rows = ROWS == 1u ? 1u : call.at[0];
  uint source[ROWS];
  [[unroll]] for (uint t = 0; t < ROWS; ++t) {
    source[t] = t < rows ? t : 0u;
    if (GATHER != 0u) source[t] = call.at[call.at[2] + 4u * source[t] + 2u];
  }

  float sums[SUMS];
  [[unroll]] for (uint i = 0; i < SUMS; ++i) sums[i] = 0.0;
  const uint count = unit_count(k_values);
  for (uint index = gl_LocalInvocationID.x; index < count; index += gl_WorkGroupSize.x) {
    Unit units[STREAMS];
    read_units(to, index, units);
    vec4 gains[GROUPS];
    if (NORM != 0u) read_groups(norm, 0u, index, gains);
    [[unroll]] for (uint t = 0; t < ROWS; ++t) {
      Slice slice;
      read_groups(x, source[t], index, slice.x);
      if (NORM != 0u) {
        [[unroll]] for (uint g = 0; g < GROUPS; ++g) {
          sums[STREAMS * ROWS + t] += dot(slice.x[g], slice.x[g]);
          slice.x[g] *= gains[g];
        }
      }
      sum_slice(slice);
      [[unroll]] for (uint i = 0; i < STREAMS; ++i) sums[i * ROWS + t] += product(units[i], index, slice);
    }
  }

  [[unroll]] for (uint i = 0; i < SUMS; ++i) {
    const float sum = subgroupAdd(sums[i]);
    if (subgroupElect()) partial[i * gl_NumSubgroups + gl_SubgroupID] = sum;
  }
  barrier();
  for (uint i = gl_LocalInvocationID.x; i < OUTPUTS * ROWS; i += gl_WorkGroupSize.x) {
    const uint output_row = i / ROWS, t = i % ROWS;
    if (t < rows && to.first + output_row < to.rows) finish(to, output_row, t);
  }
}
