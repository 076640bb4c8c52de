// Activations in 16 bits. The producer of x and the product that reads it narrow them both here, so that
// both give the same bits.

// Round to nearest even; a NaN stays one.
uint bf16_bits(float value) {
  const uint bits = floatBitsToUint(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fc0u;
  return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

uint pack_bf16(vec2 values) { return bf16_bits(values.x) | bf16_bits(values.y) << 16; }

vec2 unpack_bf16(uint word) { return uintBitsToFloat(uvec2(word << 16, word & 0xffff0000u)); }

// Round to nearest even, by hand: packHalf2x16 may round as it likes, and some drivers round towards zero. What is
// beyond f16 becomes its largest value, not infinity.
uint f16_bits(float value) {
  const uint bits = floatBitsToUint(value);
  const uint sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u;
  if (magnitude >= 0x477fe000u) return sign | 0x7bffu;
  // Below 2^-14 an f16 counts in steps of 2^-24: adding 0.5 leaves that count in the low bits of the sum, rounded.
  if (magnitude < 0x38800000u) return sign | (floatBitsToUint(uintBitsToFloat(magnitude) + 0.5) - 0x3f000000u);
  return sign | (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
}

uint pack_f16(vec2 values) { return f16_bits(values.x) | f16_bits(values.y) << 16; }
