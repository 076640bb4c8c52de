// Buffers by address, groups of four values at rows' edges, and 16-bit numbers in 32-bit words.
#ifndef BUFFERS_GLSL
#define BUFFERS_GLSL
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require

layout(buffer_reference, std430, buffer_reference_align = 4) buffer Floats { float at[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Words { uint at[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer WordPairs { uvec2 at[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer Quads { vec4 at[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer WordQuads { uvec4 at[]; };

// How numbers lie in memory.
const uint F32 = 0, BF16 = 1, F16 = 2;

// Nearest, ties to even; a NaN stays one.
uint bf16_bits(float value) {
  const uint bits = floatBitsToUint(value);
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return is_nan ? (bits >> 16) | 0x40u : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

uint pack16(vec2 value, uint type) {
  return type == BF16 ? bf16_bits(value.x) | bf16_bits(value.y) << 16 : packHalf2x16(value);
}

vec2 unpack16(uint word, uint type) {
  return type == BF16 ? uintBitsToFloat(uvec2(word << 16, word & 0xffff0000u))
                      : unpackHalf2x16(word);
}

// Activations that become f16 stop at its largest number; a NaN stays one.
vec2 saturated(vec2 value, uint type) {
  return type == F16 ? mix(clamp(value, -65504.0, 65504.0), value, isnan(value)) : value;
}

// Values index .. index + 3 of an f32 row that begins at `base` and has `count`; zeros beyond its
// end. `index` is a multiple of four, `base` any number.
vec4 load_row_quad(Floats x, uint base, uint index, uint count) {
  if ((base & 3) == 0 && index + 4 <= count) return Quads(x).at[(base + index) / 4];
  vec4 result = vec4(0);
  for (uint i = 0; i < 4 && index + i < count; ++i) result[i] = x.at[base + index + i];
  return result;
}

void store_row_quad(Words y, uint base, uint index, uint count, vec4 value, uint type) {
  if (type == F32) {
    if ((base & 3) == 0 && index + 4 <= count) {
      Quads(y).at[(base + index) / 4] = value;
      return;
    }
    for (uint i = 0; i < 4 && index + i < count; ++i)
      y.at[base + index + i] = floatBitsToUint(value[i]);
    return;
  }
  // 16-bit rows begin at even values; an odd last one has a zero beside it.
  const uint word = (base + index) / 2;
  y.at[word] = pack16(saturated(value.xy, type), type);
  if (index + 2 < count) y.at[word + 1] = pack16(saturated(value.zw, type), type);
}
#endif
