// Asks a GPU how its cooperative matrices lie in registers: result[0] becomes the code of a layout
// as coop_layout.glsl explains it, which f32 sums and f16 operands have and where pairs of elements
// are neighbours in a row; 0 where there is none. After the compiler comes spirv_rewrite:
// docs/decisions/011.
//
// Constants: 0 workgroup size: a subgroup's. Grid: 1.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_shader_subgroup_vote : require
#extension GL_NV_cooperative_matrix : require
#pragma use_vulkan_memory_model
#include "buffers.glsl"
#include "coop_layout.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1000) const uint ROWS_OF_A = 16;
layout(constant_id = 1001) const uint DEPTH = 16;
layout(constant_id = 1002) const uint ROWS_OF_SUMS = 16;
layout(constant_id = 1003) const uint COLUMNS = 16;

layout(push_constant) uniform Push {
  Words result;
};

shared uvec4 numbers[64];         // 0 .. 255 in f32
shared uvec4 packed_numbers[32];  // and in f16

void main() {
  for (uint i = gl_LocalInvocationID.x; i < 64; i += gl_WorkGroupSize.x)
    numbers[i] = floatBitsToUint(vec4(4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3));
  for (uint i = gl_LocalInvocationID.x; i < 32; i += gl_WorkGroupSize.x)
    for (uint j = 0; j < 4; ++j)
      packed_numbers[i][j] = packHalf2x16(vec2(8 * i + 2 * j, 8 * i + 2 * j + 1));
  barrier();
  fcoopmatNV<32, gl_ScopeSubgroup, ROWS_OF_SUMS, COLUMNS> sums;
  fcoopmatNV<16, gl_ScopeSubgroup, ROWS_OF_A, DEPTH> operand;
  coopMatLoadNV(sums, numbers, 0, 4, false);
  coopMatLoadNV(operand, packed_numbers, 0, 2, false);

  uint code = 0;
  if (gl_SubgroupSize == 32) {  // then there are eight elements at least
    [[unroll]] for (uint bit = 0; bit < 5; ++bit)
      code |= (findMSB(uint(subgroupShuffle(sums[0], 1 << bit))) & 7) << (3 * bit);
    [[unroll]] for (uint bit = 0; bit < 3; ++bit)
      code |= (findMSB(uint(subgroupShuffle(sums[1 << bit], 0))) & 7) << (3 * (5 + bit));
    bool fits = layout_bit(code, 5) == 0;
    [[unroll]] for (uint i = 0; i < 8; ++i) {
      const float number = float(number_in_matrix(code, gl_SubgroupInvocationID, i));
      if (sums[i] != number || float(operand[i]) != number) fits = false;
    }
    if (!subgroupAll(fits)) code = 0;
  }
  if (gl_LocalInvocationID.x == 0) result.at[0] = code;
#ifdef DUMP
  [[unroll]] for (uint i = 0; i < 8; ++i) {
    result.at[64 + gl_SubgroupInvocationID * 16 + i] = uint(sums[i]);
    result.at[64 + gl_SubgroupInvocationID * 16 + 8 + i] = uint(operand[i]);
  }
#endif
}
