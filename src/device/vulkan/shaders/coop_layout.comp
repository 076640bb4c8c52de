// Asks a GPU how a subgroup's cooperative matrices of 16 x 16 lie in registers: result[0] becomes 1
// where 32 threads have 8 elements each, of which number i of thread t is in row t / 4 + 8 * (i / 2
// % 2) and column 2 * (t % 4) + i % 2 + 8 * (i / 4), of f32 sums as of f16 operands; 0 anywhere else.
// attention_prefill_coop.comp with REGISTERS builds on that. After the compiler comes spirv_rewrite.
//
// Constants: 0 workgroup size: a subgroup's. Grid: 1.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_vote : require
#extension GL_NV_cooperative_matrix : require
#pragma use_vulkan_memory_model
#include "buffers.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1000) const uint ROWS_OF_A = 16;
layout(constant_id = 1001) const uint DEPTH = 16;
layout(constant_id = 1002) const uint ROWS_OF_SUMS = 16;
layout(constant_id = 1003) const uint COLUMNS = 16;

layout(push_constant) uniform Push {
  Words result;
};

shared float numbers[256];
shared uint packed_numbers[128];

void main() {
  for (uint i = gl_LocalInvocationID.x; i < 256; i += gl_WorkGroupSize.x) numbers[i] = float(i);
  for (uint i = gl_LocalInvocationID.x; i < 128; i += gl_WorkGroupSize.x)
    packed_numbers[i] = packHalf2x16(vec2(2 * i, 2 * i + 1));
  barrier();
  fcoopmatNV<32, gl_ScopeSubgroup, ROWS_OF_SUMS, COLUMNS> sums;
  fcoopmatNV<16, gl_ScopeSubgroup, ROWS_OF_A, DEPTH> operand;
  coopMatLoadNV(sums, numbers, 0, 16, false);
  coopMatLoadNV(operand, packed_numbers, 0, 8, false);
  bool as_known = gl_SubgroupSize == 32;  // then there are 8 elements at least
  if (as_known)
    for (uint i = 0; i < 8; ++i) {
      const uint row = gl_SubgroupInvocationID / 4 + i / 2 % 2 * 8;
      const uint column = gl_SubgroupInvocationID % 4 * 2 + i % 2 + i / 4 * 8;
      const float number = float(row * 16 + column);
      if (sums[i] != number || float(operand[i]) != number) as_known = false;
    }
  const bool all_know = subgroupAll(as_known);
  if (gl_LocalInvocationID.x == 0) result.at[0] = uint(all_know);
}
