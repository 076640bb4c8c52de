// y = x / rms(x) * norm over each group of `group` values of a row; CENTRED: of x - mean(x).
//
// Constants: 0 workgroup size, a multiple of the subgroup's; 1 OUT, the type of y (F32; BF16 and
// F16, which stops at +-65504, need an even `group`); 2 TEAM, the threads of one group: all, or a
// power of two that is at most the subgroup's size; 3 CENTRED; 4 ADDS: y, in f32, grows by the
// result.
// Grid: x = ceil(rows * cols / group / (workgroup size / TEAM)).
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "call.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint OUT = F32;
layout(constant_id = 2) const uint TEAM = 128;
layout(constant_id = 3) const uint CENTRED = 0;
layout(constant_id = 4) const uint ADDS = 0;

layout(push_constant) uniform Push {
  Floats x, norm;
  Words y, call;
  uint cols, group;
  float eps;
};

shared float subgroup_sums[2][gl_WorkGroupSize.x];

float team_sum(float value, uint turn) {
  if (TEAM < gl_WorkGroupSize.x) {
    for (uint mask = TEAM / 2; mask > 0; mask /= 2) value += subgroupShuffleXor(value, mask);
    return value;
  }
  value = subgroupAdd(value);
  if (subgroupElect()) subgroup_sums[turn][gl_SubgroupID] = value;
  barrier();
  float total = 0;
  for (uint i = 0; i < gl_NumSubgroups; ++i) total += subgroup_sums[turn][i];
  return total;
}

void main() {
  const uint teams = gl_WorkGroupSize.x / TEAM;
  const uint member = gl_LocalInvocationID.x % TEAM;
  const uint which = gl_WorkGroupID.x * teams + gl_LocalInvocationID.x / TEAM;
  const bool present = which < call_rows(call) * (cols / group);
  const uint base = present ? which * group : 0;

  float mean = 0;
  if (CENTRED != 0) {
    for (uint i = 4 * member; present && i < group; i += 4 * TEAM)
      mean += dot(load_row_quad(x, base, i, group), vec4(1));
    mean = team_sum(mean, 1) / float(group);
  }
  float squares = 0;
  for (uint i = 4 * member; present && i < group; i += 4 * TEAM) {
    vec4 value = load_row_quad(x, base, i, group);
    if (CENTRED != 0) value = mix(vec4(0), value - mean, lessThan(uvec4(i, i + 1, i + 2, i + 3), uvec4(group)));
    squares += dot(value, value);
  }
  const float scale = 1 / sqrt(team_sum(squares, 0) / float(group) + eps);
  for (uint i = 4 * member; present && i < group; i += 4 * TEAM) {
    vec4 value = (load_row_quad(x, base, i, group) - mean) * scale * load_row_quad(norm, 0, i, group);
    if (ADDS != 0) value += load_row_quad(Floats(y), base, i, group);
    store_row_quad(y, base, i, group, value, OUT);
  }
}
