// Codes of blocks that stand for more than themselves: places in a table, and codes with bits elsewhere.
// Four codes are the bytes of a word.
#ifndef CODES_GLSL
#define CODES_GLSL

// kNonLinear of tensor/quant_blocks.h.
float non_linear(uint code) {
  const uint low = (code & 4u) == 0u ? 0xbfad9881u : 0xf6eaddcfu, high = (code & 4u) == 0u ? 0x26190d01u : 0x71594535u;
  return float(bitfieldExtract(int((code & 8u) == 0u ? low : high), int(8u * (code & 3u)), 8));
}

// kTwiceFp4: magnitudes grow in steps of 1, 2 and 4.
float twice_fp4(uint code) {
  const float steps = float(code & 7u);
  const float magnitude = max(steps, max(2.0 * steps - 4.0, 4.0 * steps - 16.0));
  return (code & 8u) == 0u ? magnitude : -magnitude;
}

// Half of 2^(exponent - 127).
float half_power(uint exponent) {
  return uintBitsToFloat(exponent < 2u ? 0x00200000u << exponent : (exponent - 1u) << 23);
}

uvec4 bytes_of(uint word) { return uvec4(word, word >> 8, word >> 16, word >> 24) & 255u; }

// Bits 0 .. 3, each in bit 4 of a byte.
uint fifth_bits(uint bits) { return ((bits & 15u) * 0x00204081u & 0x01010101u) << 4; }

// What four codes are, less their block's offset.
vec4 code_values(uint codes) {
  const uvec4 bytes = bytes_of(codes);
#if defined(IQ4_NL) || defined(IQ4_XS) || defined(TYPE_IQ4_NL) || defined(TYPE_IQ4_XS)
  return vec4(non_linear(bytes.x), non_linear(bytes.y), non_linear(bytes.z), non_linear(bytes.w));
#elif defined(MXFP4) || defined(TYPE_MXFP4)
  return vec4(twice_fp4(bytes.x), twice_fp4(bytes.y), twice_fp4(bytes.z), twice_fp4(bytes.w));
#else
  return uintBitsToFloat(bytes | 0x4b000000u) - 8388608.0;
#endif
}

// The scale of sub-block `index` of iq4_xs, whose block has the eight bytes of `header`: d, the high bits of
// scales, their low nibbles.
float iq4_xs_scale(uvec2 header, uint index) {
  const uint low = header.y >> (4u * index) & 15u, high = header.x >> (16u + 2u * index) & 3u;
  return unpackHalf2x16(header.x).x * (float(low | high << 4) - 32.0);
}

// The scale of sub-block `index` of sixteen of q3_k, whose twelve bytes of scales are `packed`.
float q3_k_scale(uvec3 packed, uint index) {
  const uint low = packed[index / 4u % 2u] >> (8u * (index % 4u) + 4u * (index / 8u)) & 15u;
  const uint high = packed.z >> (8u * (index % 4u) + 2u * (index / 4u)) & 3u;
  return float(low | high << 4) - 32.0;
}
#endif
