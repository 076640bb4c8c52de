// A unit's product with x in floats.
//
// A unit's values come in GROUPS of four; x is read accordingly, once for all rows of the matrix that
// share it. Codes become floats by writing their bits into the mantissa of a power of two, because
// conversions of integers run at a fraction of the speed of other instructions on most GPUs.

#define GROUPS (UNIT_VALUES / 4u)

// Values of x that a unit is multiplied by.
struct Slice {
  vec4 x[GROUPS];
#if defined(Q4_0) || defined(Q4_K) || defined(Q5_K) || defined(NIBBLES)
  vec2 sum;  // the sum of the values that low nibbles are multiplied by, and that of the others
#elif defined(Q6_K) || defined(Q2_K) || defined(Q3_K)
  vec4 sums;  // one per quarter
#endif
};

void sum_slice(inout Slice slice) {
#if defined(Q4_0) || defined(Q4_K) || defined(Q5_K) || defined(NIBBLES)
  slice.sum = vec2(0.0);
  for (uint i = 0; i < WORDS; ++i)
    slice.sum += vec2(dot(slice.x[i], vec4(1.0)), dot(slice.x[WORDS + i], vec4(1.0)));
#elif defined(Q6_K) || defined(Q2_K) || defined(Q3_K)
  slice.sums = vec4(0.0);
  for (uint i = 0; i < GROUPS; ++i) slice.sums[i / WORDS] += dot(slice.x[i], vec4(1.0));
#endif
}

// Where group g of a unit's values begins in the row.
uint unit_k(uint unit, uint g) {
#if defined(Q4_0) || defined(NIBBLES)  // a byte holds values i and i + 16 of a block
  const uint in_block = 4u / WORDS;
  return unit / in_block * 32u + unit % in_block * (4u * WORDS) + g % WORDS * 4u + g / WORDS * 16u;
#elif defined(Q4_K) || defined(Q5_K)  // a byte holds values i and i + 32 of 64
  const uint in_pair = 8u / WORDS;
  return unit / in_pair * 64u + unit % in_pair * (4u * WORDS) + g % WORDS * 4u + g / WORDS * 32u;
#elif defined(Q6_K) || defined(Q2_K) || defined(Q3_K)  // a byte of high bits holds those of values i, i + 32, i + 64, i + 96 of 128
  const uint in_half = 8u / WORDS;
  return unit / in_half * 128u + unit % in_half * (4u * WORDS) + g % WORDS * 4u + g / WORDS * 32u;
#else
  return 4u * (GROUPS * unit + g);
#endif
}

void read_groups(Floats values, uint row, uint index, out vec4 groups[GROUPS]) {
  [[unroll]] for (uint g = 0; g < GROUPS; ++g) groups[g] = four_at(values, row, unit_k(index, g));
}

// Four signed bytes: 2^23 + 128 + byte, exactly, less what was added.
vec4 signed_bytes(uint word) {
  word ^= 0x80808080u;
  const uvec4 bytes = uvec4(word & 0xffu, (word >> 8) & 0xffu, (word >> 16) & 0xffu, word >> 24);
  return uintBitsToFloat(bytes | 0x4b000000u) - 8388736.0;
}

// The nibbles of four bytes, as 1 + low / 256 and 1 + high / 16: one shift serves both.
uvec4 nibble_bits(uint word) { return uvec4(word << 15, word << 7, word >> 1, word >> 9); }
vec4 low_nibbles(uvec4 bits) { return uintBitsToFloat((bits & 0x00078000u) | 0x3f800000u); }
vec4 high_nibbles(uvec4 bits) { return uintBitsToFloat((bits & 0x00780000u) | 0x3f800000u); }

// 1 + code / 64 of four bytes.
vec4 six_bits(uint word) {
  return uintBitsToFloat((uvec4(word << 17, word << 9, word << 1, word >> 7) & 0x007e0000u) | 0x3f800000u);
}

#if defined(Q4_0) || defined(Q4_K)
// Sums of nibble times x, of the low and of the high ones.
vec2 nibble_products(const Unit unit, const Slice slice) {
  vec2 sums = vec2(0.0);
  for (uint i = 0; i < WORDS; ++i) {
    const uvec4 bits = nibble_bits(unit.codes[i]);
    sums += vec2(dot(low_nibbles(bits), slice.x[i]), dot(high_nibbles(bits), slice.x[WORDS + i]));
  }
  return vec2(256.0, 16.0) * (sums - slice.sum);
}
#endif

float product(const Unit unit, uint index, const Slice slice) {
#if defined(F32)
  return dot(uintBitsToFloat(unit.codes), slice.x[0]);
#elif defined(BF16)
  const uvec4 first = uvec4(unit.codes.x << 16, unit.codes.x, unit.codes.y << 16, unit.codes.y) & 0xffff0000u;
  const uvec4 second = uvec4(unit.codes.z << 16, unit.codes.z, unit.codes.w << 16, unit.codes.w) & 0xffff0000u;
  return dot(uintBitsToFloat(first), slice.x[0]) + dot(uintBitsToFloat(second), slice.x[1]);
#elif defined(F16)
  return dot(vec4(unpackHalf2x16(unit.codes.x), unpackHalf2x16(unit.codes.y)), slice.x[0]) +
         dot(vec4(unpackHalf2x16(unit.codes.z), unpackHalf2x16(unit.codes.w)), slice.x[1]);
#elif defined(Q8_0) || defined(I8)
  float sum = 0.0;
  for (uint i = 0; i < WORDS; ++i) sum += dot(signed_bytes(unit.codes[i]), slice.x[i]);
#if defined(Q8_0)
  sum *= half_value(unit.scale);
#endif
  return sum;
#elif defined(Q4_0)
  const vec2 sums = nibble_products(unit, slice);
  return half_value(unit.scale) * (sums.x + sums.y - 8.0 * (slice.sum.x + slice.sum.y));
#elif defined(Q4_K)
  const vec4 scales = unit_scales(unit, index);
  return dot(scales.xy, nibble_products(unit, slice)) - dot(scales.zw, slice.sum);
#elif defined(Q5_K)
  const uint pair = index / (8u / WORDS) % 4u * 2u;
  const vec4 scales = unit_scales(unit, index);
  vec2 sums = vec2(0.0);
  for (uint i = 0; i < WORDS; ++i) {
    const uint high = unit.high[i] >> pair;
    sums.x += dot(code_values((unit.codes[i] & 0x0f0f0f0fu) | (high & 0x01010101u) << 4), slice.x[i]);
    sums.y += dot(code_values((unit.codes[i] >> 4 & 0x0f0f0f0fu) | (high >> 1 & 0x01010101u) << 4), slice.x[WORDS + i]);
  }
  return dot(scales.xy, sums) - dot(scales.zw, slice.sum);
#elif defined(NIBBLES)
  float sum = 0.0;
  for (uint i = 0; i < WORDS; ++i) {
    uint low = unit.codes[i] & 0x0f0f0f0fu, high = unit.codes[i] >> 4 & 0x0f0f0f0fu;
#if defined(HAS_FIFTH_BITS)
    low |= fifth_bits(unit.high >> (4u * i));
    high |= fifth_bits(unit.high >> (16u + 4u * i));
#endif
    sum += dot(code_values(low), slice.x[i]) + dot(code_values(high), slice.x[WORDS + i]);
  }
  return unit.factors.x * sum + unit.factors.y * (slice.sum.x + slice.sum.y);
#elif defined(Q2_K) || defined(Q3_K)
  float sum = 0.0;
  for (uint q = 0; q < 4; ++q) {
    float part = 0.0;
    for (uint i = 0; i < WORDS; ++i) {
      const uint codes = (unit.codes[i] >> (2u * q) & 0x03030303u) | (unit.high[i] >> q & 0x01010101u) << 2;
      part += dot(code_values(codes), slice.x[q * WORDS + i]);
    }
    sum += unit.factors[q].x * part + unit.factors[q].y * slice.sums[q];
  }
  return sum;
#elif defined(Q6_K)
  vec4 sums = vec4(0.0);
  for (uint i = 0; i < WORDS; ++i) {
    const uvec4 codes = unit_codes(unit, i);
    for (uint q = 0; q < 4; ++q) sums[q] += dot(six_bits(codes[q]), slice.x[q * WORDS + i]);
  }
  return dot(unit_scales(unit), 64.0 * sums - 96.0 * slice.sums);  // 64 (1 + c / 64) - 96 = c - 32
#endif
}
