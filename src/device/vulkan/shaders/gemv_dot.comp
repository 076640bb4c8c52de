// variants: gemv_dot_q8_0=-DQ8_0; gemv_dot_q4_0=-DQ4_0; gemv_dot_q4_k=-DQ4_K; gemv_dot_q6_k=-DQ6_K; gemv_dot_i8=-DI8
// y = W x for a few rows of x and quantised weights, in integers: for GPUs with dot products of bytes.
//
// Unpacking codes to floats takes longer than reading them. Here each workgroup first writes x down as
// whole numbers of sixteen bits with one scale for each 32 values, which is exact to 2^-16 of the
// largest of them, and then multiplies bytes by bytes. That takes a while, so a workgroup makes
// several groups of rows, every gl_NumWorkGroups.x-th; there may be fewer workgroups than groups.
//
// Specialization constants: those of gemv_frame.glsl, and
//   7 MOST_K  K to the next multiple of 32. Needs about 2.4 * ROWS * MOST_K bytes of shared memory.
// Subgroups must have eight threads or more.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_spirv_intrinsics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require

#define TURNS 2
#if !defined(Q6_K)
#define WORDS 4
#endif
#include "weights.glsl"
#include "gemv_frame.glsl"

layout(constant_id = 7) const uint MOST_K = 2048;

// A row of x as whole numbers: high and low bytes apart, four of either in a word.
shared int x_high[ROWS * MOST_K / 4];
shared int x_low[ROWS * MOST_K / 4];
shared float x_scale[ROWS * MOST_K / 32];
shared int x_sum[ROWS * MOST_K / 16];  // sums of sixteen whole numbers

#include "gemv_dot_products.glsl"

const float LARGEST = 127.0 * 256.0;  // whole number

int packed_bytes(ivec4 v) {
  v &= 0xff;
  return v.x | (v.y << 8) | (v.z << 16) | (v.w << 24);
}

// Writes a row of x to shared memory; returns this thread's part of the sum of squares. Eight threads
// make a block of 32.
float stage(uint row, uint t) {
  const uint thread = gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID;
  const uint fours = padded(k_values) / 4u;
  float square = 0.0;
  for (uint i = thread; i < fours; i += gl_WorkGroupSize.x) {
    vec4 v = four_at(x, row, 4u * i);
    if (NORM != 0u) {
      square += dot(v, v);
      v *= four_at(norm, 0u, 4u * i);
    }
    // Bits of floats that are not negative are in the order of the floats, infinity and then NaN last:
    // neither gets lost, they become the scale.
    const vec4 size = abs(v);
    uint bits = any(isnan(v)) ? 0x7fc00000u : floatBitsToUint(max(max(size.x, size.y), max(size.z, size.w)));
    for (uint step = 1; step < 8; step <<= 1) bits = max(bits, subgroupShuffleXor(bits, step));
    const float most = uintBitsToFloat(bits);
    const bool is_usable = bits < 0x7f800000u && most > 1e-30;  // its inverse is finite
    const ivec4 whole = is_usable ? ivec4(roundEven(v * (LARGEST / most))) : ivec4(0);
    const ivec4 high = (whole + 128) >> 8;
    int sum = whole.x + whole.y + whole.z + whole.w;
    for (uint step = 1; step < 4; step <<= 1) sum += subgroupShuffleXor(sum, step);
    const uint at = t * fours + i;
    x_high[at] = packed_bytes(high);
    x_low[at] = packed_bytes(whole - 256 * high);
    if (i % 4u == 0u) x_sum[at / 4u] = sum;
    if (i % 8u == 0u) x_scale[at / 8u] = most / LARGEST;
  }
  return square;
}

void main() {
  const uint rows = ROWS == 1u ? 1u : call.at[0];
  const uint groups = group_count(), count = unit_count(k_values);
  const uint thread = gl_LocalInvocationID.x;
  uint group = gl_WorkGroupID.x;
  Target to = target(group);
  Unit units[STREAMS];  // asked for before x is looked at, and always before anything is waited for
  if (thread < count) read_units(to, thread, units);
  [[unroll]] for (uint t = 0; t < ROWS; ++t) share_squares(t, stage(source_row(t, rows), t));
  barrier();

  for (uint turn = 0; group < groups; turn ^= 1u) {
    float sums[SUMS];
    [[unroll]] for (uint i = 0; i < SUMS; ++i) sums[i] = 0.0;
    for (uint index = thread; index < count;) {
      [[unroll]] for (uint t = 0; t < ROWS; ++t)
        [[unroll]] for (uint i = 0; i < STREAMS; ++i)
          sums[i * ROWS + t] += product(units[i], index, t * (padded(k_values) / 32u));
      index += gl_WorkGroupSize.x;
      if (index < count) read_units(to, index, units);
    }
    Target made = to;
    group += gl_NumWorkGroups.x;
    if (group < groups) {
      to = target(group);
      if (thread < count) read_units(to, thread, units);
    }
    finish_group(made, turn, rows, sums);
  }
}
