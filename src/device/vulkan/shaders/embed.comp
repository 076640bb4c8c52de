// variants: embed_bf16=-DBF16; embed_f16=-DF16; embed_f32=-DF32; embed_q8_0=-DQ8_0; embed_q4_0=-DQ4_0; embed_q4_k=-DQ4_K; embed_q6_k=-DQ6_K; embed_i8=-DI8; embed_q4_1=-DQ4_1; embed_q5_0=-DQ5_0; embed_q5_1=-DQ5_1; embed_q2_k=-DQ2_K; embed_q3_k=-DQ3_K; embed_q5_k=-DQ5_K; embed_iq4_nl=-DIQ4_NL; embed_iq4_xs=-DIQ4_XS; embed_mxfp4=-DMXFP4
// y[t] = table[tokens[t]]. A workgroup takes one row t (gl_WorkGroupID.x); rows beyond the call's do
// nothing. Tokens outside of the vocabulary read as token 0.
//
// Specialization constants: 0 workgroup size.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_buffer_reference : require

#include "weights.glsl"

layout(local_size_x_id = 0) in;

layout(buffer_reference, std430, buffer_reference_align = 4) writeonly buffer Result { float at[]; };

layout(push_constant) uniform Push {
  Words tokens;
  Words table;
  Result y;
  Words call;
  uint k_values;
  uint vocab;
};

void main() {
  const uint t = gl_WorkGroupID.x;
  if (t >= call.at[0]) return;
  const uint asked = tokens.at[t];
  const uint token = asked < vocab ? asked : 0u;
  for (uint k = gl_LocalInvocationID.x; k < k_values; k += gl_WorkGroupSize.x)
    y.at[t * k_values + k] = weight_value(table, vocab, k_values, token, k);
}
