// How matrices of N rows by K lie in memory; device/vulkan/kernel_shapes.h says it in C++.
//
// Exactly one of BF16, F16, F32, Q8_0, Q4_0, Q4_K, Q6_K, I8 is defined. All offsets count words of
// four bytes, so that a matrix may have eight gigabytes without integers of 64 bits.

#if defined(Q8_0) || defined(Q4_0) || defined(Q4_K) || defined(Q6_K)
#define HAS_BLOCKS  // K is a multiple of 32
#endif

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

#if defined(Q4_K)
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
