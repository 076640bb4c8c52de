// A matrix's rows cut into units: what one thread reads at once, and its product with x.
//
// A unit is WORDS words of codes and what scales them. Its values come in GROUPS of four whose place
// in the row is unit_k; x is read accordingly, once for all rows of the matrix that share it.
//
// Codes become floats by writing their bits into the mantissa of a power of two: converting integers
// runs at a fraction of the speed of other instructions on most GPUs.

#if defined(F32)
#define WORDS 4
#define GROUPS 1
#elif defined(BF16) || defined(F16)
#define WORDS 4
#define GROUPS 2
#elif defined(Q8_0) || defined(I8)
#ifndef WORDS
#define WORDS 2
#endif
#define GROUPS WORDS
#elif defined(Q4_0) || defined(Q4_K)
#ifndef WORDS
#define WORDS 2
#endif
#define GROUPS (2 * WORDS)
#elif defined(Q6_K)
#define WORDS 1
#define GROUPS 4
#endif

#if defined(Q8_0) || defined(Q4_0) || defined(Q4_K) || defined(Q6_K)
#define HAS_BLOCKS
#endif

#if WORDS == 4
#define VECTOR uvec4
#elif WORDS == 2
#define VECTOR uvec2
#else
#define VECTOR uint
#endif

layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Vectors { VECTOR at[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer FourWords { uvec4 at[]; };

struct Unit {
  uint code[WORDS];
#if defined(Q8_0) || defined(Q4_0)
  float scale;
#elif defined(Q4_K)
  uvec4 scales;
#elif defined(Q6_K)
  uint low[2];
  uvec2 scales;
  float factor;
#endif
};

// Values of x that a unit is multiplied by.
struct Slice {
  vec4 x[GROUPS];
#if defined(Q4_0) || defined(Q4_K)
  vec2 sum;  // of the values that low nibbles are multiplied by, and of the others
#elif defined(Q6_K)
  vec4 sums;  // of each group
#endif
};

void sum_slice(inout Slice slice) {
#if defined(Q4_0) || defined(Q4_K)
  slice.sum = vec2(0.0);
  for (uint i = 0; i < WORDS; ++i)
    slice.sum += vec2(dot(slice.x[i], vec4(1.0)), dot(slice.x[WORDS + i], vec4(1.0)));
#elif defined(Q6_K)
  for (uint i = 0; i < 4; ++i) slice.sums[i] = dot(slice.x[i], vec4(1.0));
#endif
}

// Units of a row of k values.
uint unit_count(uint k) {
#if defined(Q6_K)
  return k / 16u;
#else
  return (k + 4u * GROUPS - 1u) / (4u * GROUPS);
#endif
}

// Where group g of a unit's values begins in the row.
uint unit_k(uint unit, uint g) {
#if defined(Q4_0)  // a byte holds values i and i + 16 of a block
  const uint per_block = 4u / WORDS;
  return unit / per_block * 32u + unit % per_block * (4u * WORDS) + (g < WORDS ? 4u * g : 4u * (g - WORDS) + 16u);
#elif defined(Q4_K)  // a byte holds values i and i + 32 of 64
  const uint per_pair = 8u / WORDS;
  return unit / per_pair * 64u + unit % per_pair * (4u * WORDS) + (g < WORDS ? 4u * g : 4u * (g - WORDS) + 32u);
#elif defined(Q6_K)  // a byte of high bits holds those of values i, i + 32, i + 64, i + 96 of 128
  return unit / 8u * 128u + unit % 8u * 4u + 32u * g;
#else
  return 4u * (GROUPS * unit + g);
#endif
}

void unpack_codes(inout Unit unit, VECTOR from) {
#if WORDS == 1
  unit.code[0] = from;
#else
  for (uint i = 0; i < WORDS; ++i) unit.code[i] = from[i];
#endif
}

Unit read_unit(Words w, uint rows, uint k, uint row, uint index) {
  Unit unit;
#if defined(F32)
  unpack_codes(unit, Vectors(w).at[row * (padded(k) / 4u) + index]);
#elif defined(BF16) || defined(F16)
  unpack_codes(unit, Vectors(w).at[row * (padded(k) / 8u) + index]);
#elif defined(I8)
  unpack_codes(unit, Vectors(w).at[row * (padded(k) / (4u * WORDS)) + index]);
#elif defined(Q8_0)
  unpack_codes(unit, Vectors(w).at[row * (k / (4u * WORDS)) + index]);
  unit.scale = half_at(w, plane_words(rows * (k / 4u)), row * (k / 32u) + index / (8u / WORDS));
#elif defined(Q4_0)
  unpack_codes(unit, Vectors(w).at[row * (k / (8u * WORDS)) + index]);
  unit.scale = half_at(w, plane_words(rows * (k / 8u)), row * (k / 32u) + index / (4u / WORDS));
#elif defined(Q4_K)
  unpack_codes(unit, Vectors(w).at[row * (k / (8u * WORDS)) + index]);
  unit.scales = FourWords(w).at[plane_words(rows * (k / 8u)) / 4u + row * (k / 256u) + index / (32u / WORDS)];
#elif defined(Q6_K)
  const uint supers = rows * (k / 256u), super = row * (k / 256u) + index / 16u;
  const uint high = plane_words(supers * 32u), scales = high + plane_words(supers * 16u);
  const uint factors = scales + plane_words(supers * 4u);
  const uint second = index / 8u % 2u, word = index % 8u;
  unit.code[0] = w.at[high + row * (k / 16u) + index];
  unit.low[0] = w.at[super * 32u + second * 16u + word];
  unit.low[1] = w.at[super * 32u + second * 16u + word + 8u];
  // Bytes 0, 2, 4, 6 are the scales of the four groups.
  const uint shift = word < 4u ? 0u : 8u, at = scales + super * 4u + second * 2u;
  unit.scales = uvec2(w.at[at], w.at[at + 1u]) >> shift;
  unit.factor = half_at(w, factors, super);
#endif
  return unit;
}

// Four bytes as 2^23 + byte, exactly.
vec4 lifted_bytes(uint word) {
  return uintBitsToFloat(uvec4(word & 0xffu, (word >> 8) & 0xffu, (word >> 16) & 0xffu, word >> 24) | 0x4b000000u);
}

vec4 signed_bytes(uint word) { return lifted_bytes(word ^ 0x80808080u) - 8388736.0; }

// The nibbles of four bytes, as 1 + low / 256 and 1 + high / 16: one shift serves both.
uvec4 nibble_bits(uint word) { return uvec4(word << 15, word << 7, word >> 1, word >> 9); }
vec4 low_nibbles(uvec4 bits) { return uintBitsToFloat((bits & 0x00078000u) | 0x3f800000u); }
vec4 high_nibbles(uvec4 bits) { return uintBitsToFloat((bits & 0x00780000u) | 0x3f800000u); }

#if defined(Q4_0) || defined(Q4_K)
// Sums of nibble times x, of the low and of the high ones.
vec2 nibble_products(const Unit unit, const Slice slice) {
  vec2 sums = vec2(0.0);
  for (uint i = 0; i < WORDS; ++i) {
    const uvec4 bits = nibble_bits(unit.code[i]);
    sums += vec2(dot(low_nibbles(bits), slice.x[i]), dot(high_nibbles(bits), slice.x[WORDS + i]));
  }
  return vec2(256.0, 16.0) * (sums - slice.sum);
}
#endif

#if defined(Q6_K)
// 1 + code / 64 of four bytes.
vec4 six_bits(uint word) {
  return uintBitsToFloat((uvec4(word << 17, word << 9, word << 1, word >> 7) & 0x007e0000u) | 0x3f800000u);
}
#endif

float product(const Unit unit, uint index, const Slice slice) {
#if defined(F32)
  return dot(uintBitsToFloat(uvec4(unit.code[0], unit.code[1], unit.code[2], unit.code[3])), slice.x[0]);
#elif defined(BF16)
  const uvec4 first = uvec4(unit.code[0] << 16, unit.code[0], unit.code[1] << 16, unit.code[1]) & 0xffff0000u;
  const uvec4 second = uvec4(unit.code[2] << 16, unit.code[2], unit.code[3] << 16, unit.code[3]) & 0xffff0000u;
  return dot(uintBitsToFloat(first), slice.x[0]) + dot(uintBitsToFloat(second), slice.x[1]);
#elif defined(F16)
  return dot(vec4(unpackHalf2x16(unit.code[0]), unpackHalf2x16(unit.code[1])), slice.x[0]) +
         dot(vec4(unpackHalf2x16(unit.code[2]), unpackHalf2x16(unit.code[3])), slice.x[1]);
#elif defined(Q8_0) || defined(I8)
  float sum = 0.0;
  for (uint i = 0; i < WORDS; ++i) sum += dot(signed_bytes(unit.code[i]), slice.x[i]);
#if defined(Q8_0)
  sum *= unit.scale;
#endif
  return sum;
#elif defined(Q4_0)
  const vec2 sums = nibble_products(unit, slice);
  return unit.scale * (sums.x + sums.y - 8.0 * (slice.sum.x + slice.sum.y));
#elif defined(Q4_K)
  const uint sub = index / (8u / WORDS) % 4u * 2u;
  const vec2 scale0 = q4_k_scale(unit.scales.yzw, sub), scale1 = q4_k_scale(unit.scales.yzw, sub + 1u);
  const vec2 factors = unpackHalf2x16(unit.scales.x);
  return factors.x * dot(vec2(scale0.x, scale1.x), nibble_products(unit, slice)) -
         factors.y * dot(vec2(scale0.y, scale1.y), slice.sum);
#elif defined(Q6_K)
  // Four codes of six bits in the bytes of each word.
  const uint high = unit.code[0];
  const uvec4 codes = (uvec4(unit.low[0], unit.low[1], unit.low[0] >> 4, unit.low[1] >> 4) & 0x0f0f0f0fu) |
                      (uvec4(high << 4, high << 2, high, high >> 2) & 0x30303030u);
  vec4 sums;
  for (uint i = 0; i < 4; ++i) sums[i] = dot(six_bits(codes[i]), slice.x[i]);
  const ivec2 even = bitfieldExtract(ivec2(unit.scales), 0, 8), odd = bitfieldExtract(ivec2(unit.scales), 16, 8);
  const vec4 scales = vec4(even.x, odd.x, even.y, odd.y);
  return 64.0 * unit.factor * dot(scales, sums - 1.5 * slice.sums);  // 64 (1 + c / 64) - 96 = c - 32
#endif
}
