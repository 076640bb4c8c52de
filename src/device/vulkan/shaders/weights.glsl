// How matrices of N rows by K lie in memory; device/vulkan/kernel_shapes.h says it in C++.
//
// Exactly one form is defined: BF16, F16, F32, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K,
// IQ4_NL, IQ4_XS, MXFP4, I8. All offsets count words of
// four bytes, so that a matrix may have eight gigabytes without integers of 64 bits.

#if !defined(BF16) && !defined(F16) && !defined(F32) && !defined(I8)
#define HAS_BLOCKS  // K is a multiple of 32
#endif
// Codes of four bits, values i and i + 16 of 32 in a byte, in a plane of their own.
#if defined(Q4_1) || defined(Q5_0) || defined(Q5_1) || defined(IQ4_NL) || defined(IQ4_XS) || defined(MXFP4)
#define NIBBLES
#endif
#if defined(Q5_0) || defined(Q5_1)
#define HAS_FIFTH_BITS  // in the next plane, a word for each 32 values
#endif
#include "codes.glsl"

layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer Words { uint at[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer Floats { float at[]; };

uint padded(uint k) { return (k + 31u) & ~31u; }

// Words of a plane of that many bytes, the next plane being aligned to 256 bytes.
uint plane_words(uint words) { return (words + 63u) & ~63u; }

// Half number `index` of those that begin at a word.
float half_at(Words words, uint first, uint index) {
  const vec2 pair = unpackHalf2x16(words.at[first + (index >> 1)]);
  return (index & 1u) == 0u ? pair.x : pair.y;
}

uint byte_at(Words words, uint first, uint index) {
  return (words.at[first + (index >> 2)] >> (8u * (index & 3u))) & 0xffu;
}

int signed_byte_at(Words words, uint first, uint index) {
  return bitfieldExtract(int(words.at[first + (index >> 2)]), int(8u * (index & 3u)), 8);
}

#if defined(Q4_K) || defined(Q5_K)
// Scale and minimum, six bits each, of sub-block `index` of eight: see PackedScales in
// tensor/quant_blocks.h. `packed` are the twelve bytes.
vec2 q4_k_scale(uvec3 packed, uint index) {
  const uint shift = 8u * (index & 3u);
  const uvec3 bytes = (packed >> shift) & 0xffu;
  const uvec2 pair = index < 4u ? bytes.xy & 63u
                                : uvec2((bytes.z & 15u) | (bytes.x >> 6 << 4), (bytes.z >> 4) | (bytes.y >> 6 << 4));
  return vec2(pair);
}
#endif

#if defined(NIBBLES)
// Where the scales of a matrix begin, in words.
uint scales_plane(uint rows, uint k) {
  const uint after_codes = plane_words(rows * (k / 8u));
#if defined(HAS_FIFTH_BITS)
  return after_codes + plane_words(rows * (k / 32u));
#else
  return after_codes;
#endif
}

// A block's values are factors.x * code + factors.y.
vec2 block_factors(Words w, uint rows, uint k, uint block) {
  const uint scales = scales_plane(rows, k);
#if defined(Q4_1) || defined(Q5_1)
  return unpackHalf2x16(w.at[scales + block]);
#elif defined(Q5_0)
  const float d = half_at(w, scales, block);
  return vec2(d, -16.0 * d);
#elif defined(IQ4_NL)
  return vec2(half_at(w, scales, block), 0.0);
#elif defined(MXFP4)
  return vec2(half_power(byte_at(w, scales, block)), 0.0);
#elif defined(IQ4_XS)
  const uint at = scales + block / 8u * 2u;
  return vec2(iq4_xs_scale(uvec2(w.at[at], w.at[at + 1u]), block % 8u), 0.0);
#endif
}

uint high_bits(Words w, uint rows, uint k, uint block) {
#if defined(HAS_FIFTH_BITS)
  return w.at[plane_words(rows * (k / 8u)) + block];
#else
  return 0u;
#endif
}
#endif

#if defined(Q2_K) || defined(Q3_K)
// The values of a sub-block of 16 are factors.x * code + factors.y.
vec2 sub_block_factors(Words w, uint rows, uint k, uint super, uint index) {
  const uint supers = rows * (k / 256u);
#if defined(Q2_K)
  const uint scales = plane_words(supers * 16u), factors = scales + plane_words(supers * 4u);
  const uint both = byte_at(w, scales + super * 4u, index);
  return unpackHalf2x16(w.at[factors + super]) * vec2(float(both & 15u), -float(both >> 4));
#else
  const uint scales = plane_words(supers * 16u) + plane_words(supers * 8u), factors = scales + plane_words(supers * 3u);
  const uint at = scales + super * 3u;
  const float scale = half_at(w, factors, super) * q3_k_scale(uvec3(w.at[at], w.at[at + 1u], w.at[at + 2u]), index);
  return vec2(scale, -4.0 * scale);
#endif
}
#endif

// The plain definition: value k of a row.
float weight_value(Words w, uint rows, uint k_values, uint row, uint k) {
#if defined(F32)
  return uintBitsToFloat(w.at[row * padded(k_values) + k]);
#elif defined(F16)
  return half_at(w, row * (padded(k_values) / 2u), k);
#elif defined(BF16)
  const uint pair = w.at[row * (padded(k_values) / 2u) + k / 2u];
  return uintBitsToFloat((k & 1u) == 0u ? pair << 16 : pair & 0xffff0000u);
#elif defined(Q8_0)
  const uint scales = plane_words(rows * (k_values / 4u));
  return half_at(w, scales, row * (k_values / 32u) + k / 32u) * float(signed_byte_at(w, row * (k_values / 4u), k));
#elif defined(Q4_0)
  const uint block = row * (k_values / 32u) + k / 32u;
  const uint scales = plane_words(rows * (k_values / 8u));
  const uint code = (byte_at(w, block * 4u, k % 16u) >> (k % 32u / 16u * 4u)) & 15u;
  return half_at(w, scales, block) * (float(code) - 8.0);
#elif defined(Q4_K)
  const uint super = row * (k_values / 256u) + k / 256u, sub = k % 256u / 32u;
  const uint at = plane_words(rows * (k_values / 8u)) + 4u * super;
  const vec2 factors = unpackHalf2x16(w.at[at]) * q4_k_scale(uvec3(w.at[at + 1u], w.at[at + 2u], w.at[at + 3u]), sub);
  const uint code = (byte_at(w, super * 32u, sub / 2u * 32u + k % 32u) >> (sub % 2u * 4u)) & 15u;
  return factors.x * float(code) - factors.y;
#elif defined(NIBBLES)
  const uint block = row * (k_values / 32u) + k / 32u;
  const uint low = (byte_at(w, block * 4u, k % 16u) >> (k % 32u / 16u * 4u)) & 15u;
  const uint code = low | (high_bits(w, rows, k_values, block) >> (k % 32u) & 1u) << 4;
  const vec2 factors = block_factors(w, rows, k_values, block);
  return factors.x * code_values(code).x + factors.y;
#elif defined(Q5_K)
  const uint super = row * (k_values / 256u) + k / 256u, sub = k % 256u / 32u, supers = rows * (k_values / 256u);
  const uint at = plane_words(rows * (k_values / 8u)) + 4u * super;
  const uint high = plane_words(rows * (k_values / 8u)) + plane_words(supers * 4u) + super * 8u;
  const vec2 factors = unpackHalf2x16(w.at[at]) * q4_k_scale(uvec3(w.at[at + 1u], w.at[at + 2u], w.at[at + 3u]), sub);
  const uint low = (byte_at(w, super * 32u, sub / 2u * 32u + k % 32u) >> (sub % 2u * 4u)) & 15u;
  return factors.x * float(low | (byte_at(w, high, k % 32u) >> sub & 1u) << 4) - factors.y;
#elif defined(Q2_K) || defined(Q3_K)
  const uint super = row * (k_values / 256u) + k / 256u, second = k % 256u / 128u, quarter = k % 128u / 32u;
  uint code = byte_at(w, super * 16u, second * 32u + k % 32u) >> (2u * quarter) & 3u;
#if defined(Q3_K)
  const uint high = plane_words(rows * (k_values / 256u) * 16u) + super * 8u;
  code |= (byte_at(w, high, k % 32u) >> (4u * second + quarter) & 1u) << 2;
#endif
  const vec2 factors = sub_block_factors(w, rows, k_values, super, k % 256u / 16u);
  return factors.x * float(code) + factors.y;
#elif defined(Q6_K)
  const uint super = row * (k_values / 256u) + k / 256u, supers = rows * (k_values / 256u);
  const uint high = plane_words(supers * 32u), scales = high + plane_words(supers * 16u);
  const uint factors = scales + plane_words(supers * 4u);
  const uint quarter = k % 128u / 32u, second = k % 256u / 128u;
  const uint low_bits = byte_at(w, super * 32u + second * 16u, quarter % 2u * 32u + k % 32u) >> (quarter / 2u * 4u);
  const uint high_bits = byte_at(w, high + super * 16u + second * 8u, k % 32u) >> (2u * quarter);
  const int code = int((low_bits & 15u) | ((high_bits & 3u) << 4)) - 32;
  return half_at(w, factors, super) * float(signed_byte_at(w, scales + super * 4u, k % 256u / 16u) * code);
#elif defined(I8)
  const uint scales = plane_words(rows * (padded(k_values) / 4u));
  return uintBitsToFloat(w.at[scales + row]) * float(signed_byte_at(w, row * (padded(k_values) / 4u), k));
#endif
}
