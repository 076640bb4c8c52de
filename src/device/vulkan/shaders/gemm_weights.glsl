// CHUNK neighbouring values of a row of a weight matrix: fetch_w loads what lies in memory, unpack_w makes values of it.
// The two are apart so that the loads of the next step are under way while this one is multiplied.
//
// Planes as in device/vulkan/kernel_shapes.h: each begins at a multiple of 256 bytes after the ones before it.

uint plane_end(uint bytes) { return (bytes + 255u) / 256u * 256u; }

uint k_padded() { return (push.K + 31u) / 32u * 32u; }

#if defined(TYPE_BF16) || defined(TYPE_F16) || defined(TYPE_F32)
#define CHUNK 8
#else
#define CHUNK 16
#endif

#if defined(TYPE_Q4_1) || defined(TYPE_Q5_0) || defined(TYPE_Q5_1) || defined(TYPE_IQ4_NL) || defined(TYPE_IQ4_XS) || defined(TYPE_MXFP4)
#define NIBBLES
#endif
#if defined(TYPE_Q5_0) || defined(TYPE_Q5_1)
#define HAS_FIFTH_BITS
#endif
#include "codes.glsl"

struct RawW {
#if defined(TYPE_Q5_K)
  uvec4 high;
#endif
  uvec4 codes;
  uvec4 more;  // high bits, the header of a superblock, or the second half of eight f32
  uint scale;  // the word that holds it
};

#if defined(TYPE_BF16) || defined(TYPE_F16)

RawW fetch_w(Quads w, uint n, uint row, uint k) { return RawW(w.v[(row * k_padded() + k) / 8], uvec4(0), 0); }

void unpack_w(RawW raw, uint row, uint k, out vec4 values[CHUNK / 4]) {
  values[0] = vec4(UNPACK16(raw.codes.x), UNPACK16(raw.codes.y));
  values[1] = vec4(UNPACK16(raw.codes.z), UNPACK16(raw.codes.w));
}

#elif defined(TYPE_F32)

RawW fetch_w(Quads w, uint n, uint row, uint k) {
  const uint at = (row * k_padded() + k) / 4;
  return RawW(w.v[at], w.v[at + 1], 0);
}

void unpack_w(RawW raw, uint row, uint k, out vec4 values[CHUNK / 4]) {
  values[0] = uintBitsToFloat(raw.codes);
  values[1] = uintBitsToFloat(raw.more);
}

#else

// The f16 at `index` of a plane of them, of which `word` is the word.
float half_of(uint word, uint index) { return unpackHalf2x16(word)[index & 1u]; }

// A byte in the low bits of 2^23 is that float plus the byte; conversions of integers have a quarter of the speed.
vec4 unsigned_bytes(uint word) {
  const uvec4 bytes = uvec4(word, word >> 8, word >> 16, word >> 24) & 255u;
  return uintBitsToFloat(bytes | 0x4b000000u) - 8388608.0;
}

vec4 signed_bytes(uint word) { return unsigned_bytes(word ^ 0x80808080u) - 128.0; }

#if defined(TYPE_I8)

RawW fetch_w(Quads w, uint n, uint row, uint k) {
  return RawW(w.v[(row * k_padded() + k) / 16], uvec4(0), Words(w).v[plane_end(n * k_padded()) / 4 + row]);
}

void unpack_w(RawW raw, uint row, uint k, out vec4 values[CHUNK / 4]) {
  const float scale = uintBitsToFloat(raw.scale);
  for (uint i = 0; i < 4; ++i) values[i] = signed_bytes(raw.codes[i]) * scale;
}

#elif defined(TYPE_Q8_0)

uint block_of(uint row, uint k) { return row * (push.K / 32) + k / 32; }

RawW fetch_w(Quads w, uint n, uint row, uint k) {
  return RawW(w.v[(row * push.K + k) / 16], uvec4(0), Words(w).v[plane_end(n * push.K) / 4 + block_of(row, k) / 2]);
}

void unpack_w(RawW raw, uint row, uint k, out vec4 values[CHUNK / 4]) {
  const float scale = half_of(raw.scale, block_of(row, k));
  for (uint i = 0; i < 4; ++i) values[i] = signed_bytes(raw.codes[i]) * scale;
}

#elif defined(TYPE_Q4_0)

// A block's first 16 values are the low nibbles of its 16 bytes, the others the high ones.
uint block_of(uint row, uint k) { return row * (push.K / 32) + k / 32; }

RawW fetch_w(Quads w, uint n, uint row, uint k) {
  const uint block = block_of(row, k);
  return RawW(w.v[block], uvec4(0), Words(w).v[plane_end(n * (push.K / 2)) / 4 + block / 2]);
}

void unpack_w(RawW raw, uint row, uint k, out vec4 values[CHUNK / 4]) {
  const float scale = half_of(raw.scale, block_of(row, k));
  const uint shift = (k & 16u) == 0 ? 0 : 4;
  for (uint i = 0; i < 4; ++i) values[i] = (unsigned_bytes(raw.codes[i] >> shift & 0x0f0f0f0fu) - 8.0) * scale;
}

#elif defined(NIBBLES)

// As Q4_0, with fifth bits and scales in planes of their own.
uint block_of(uint row, uint k) { return row * (push.K / 32) + k / 32; }

RawW fetch_w(Quads w, uint n, uint row, uint k) {
  const uint block = block_of(row, k);
  RawW raw;
  raw.codes = w.v[block];
  raw.more = uvec4(0);
  uint scales = plane_end(n * (push.K / 2));
#if defined(HAS_FIFTH_BITS)
  raw.more.x = Words(w).v[scales / 4 + block];
  scales += plane_end(n * (push.K / 8));
#endif
#if defined(TYPE_Q4_1) || defined(TYPE_Q5_1)
  raw.scale = Words(w).v[scales / 4 + block];
#elif defined(TYPE_MXFP4)
  raw.scale = Words(w).v[scales / 4 + block / 4];
#elif defined(TYPE_IQ4_XS)
  raw.more.y = Words(w).v[scales / 4 + block / 8 * 2];
  raw.scale = Words(w).v[scales / 4 + block / 8 * 2 + 1];
#else
  raw.scale = Words(w).v[scales / 4 + block / 2];
#endif
  return raw;
}

void unpack_w(RawW raw, uint row, uint k, out vec4 values[CHUNK / 4]) {
  const uint block = block_of(row, k);
#if defined(TYPE_Q4_1) || defined(TYPE_Q5_1)
  const vec2 factors = unpackHalf2x16(raw.scale);
#elif defined(TYPE_MXFP4)
  const vec2 factors = vec2(half_power(raw.scale >> 8 * (block % 4) & 255u), 0);
#elif defined(TYPE_IQ4_XS)
  const vec2 factors = vec2(iq4_xs_scale(uvec2(raw.more.y, raw.scale), block % 8), 0);
#elif defined(TYPE_Q5_0)
  const float d = half_of(raw.scale, block);
  const vec2 factors = vec2(d, -16 * d);
#else
  const vec2 factors = vec2(half_of(raw.scale, block), 0);
#endif
  const uint shift = (k & 16u) == 0 ? 0 : 4;
  for (uint i = 0; i < 4; ++i) {
    uint codes = raw.codes[i] >> shift & 0x0f0f0f0fu;
#if defined(HAS_FIFTH_BITS)
    codes |= fifth_bits(raw.more.x >> ((k & 16u) + 4 * i));
#endif
    values[i] = code_values(codes) * factors.x + factors.y;
  }
}

#elif defined(TYPE_Q2_K) || defined(TYPE_Q3_K)

uint superblock_of(uint row, uint k) { return row * (push.K / 256) + k / 256; }

// 128 values are 32 bytes, a pair of bits of each of four quarters in each.
RawW fetch_w(Quads w, uint n, uint row, uint k) {
  const uint superblock = superblock_of(row, k), all = n * (push.K / 256), sub = k % 256 / 16;
  RawW raw;
  raw.codes = w.v[superblock * 4 + k % 256 / 128 * 2 + k % 32 / 16];
#if defined(TYPE_Q2_K)
  const uint scales = plane_end(all * 64), factors = scales + plane_end(all * 16);
  raw.more = uvec4(Words(w).v[factors / 4 + superblock], 0, 0, 0);
  raw.scale = Words(w).v[scales / 4 + superblock * 4 + sub / 4] >> 8 * (sub % 4) & 255u;
#else
  const uint high = plane_end(all * 64), scales = high + plane_end(all * 32), factors = scales + plane_end(all * 12);
  raw.more = w.v[high / 16 + superblock * 2 + k % 32 / 16];
  const uint at = scales / 4 + superblock * 3;
  const uvec3 packed = uvec3(Words(w).v[at], Words(w).v[at + 1], Words(w).v[at + 2]);
  const float d = half_of(Words(w).v[factors / 4 + superblock / 2], superblock);
  raw.scale = floatBitsToUint(d * q3_k_scale(packed, sub));
#endif
  return raw;
}

void unpack_w(RawW raw, uint row, uint k, out vec4 values[CHUNK / 4]) {
#if defined(TYPE_Q2_K)
  const vec2 factors = unpackHalf2x16(raw.more.x) * vec2(float(raw.scale & 15u), -float(raw.scale >> 4));
#else
  const float scale = uintBitsToFloat(raw.scale);
  const vec2 factors = vec2(scale, -4 * scale);
#endif
  for (uint i = 0; i < 4; ++i) {
    uint codes = raw.codes[i] >> k % 128 / 32 * 2 & 0x03030303u;
#if defined(TYPE_Q3_K)
    codes |= (raw.more[i] >> k % 256 / 32 & 0x01010101u) << 2;
#endif
    values[i] = code_values(codes) * factors.x + factors.y;
  }
}

#elif defined(TYPE_Q4_K) || defined(TYPE_Q5_K)

uint superblock_of(uint row, uint k) { return row * (push.K / 256) + k / 256; }

// 64 values are 32 bytes, low nibbles first.
RawW fetch_w(Quads w, uint n, uint row, uint k) {
  const uint superblock = superblock_of(row, k);
  const uint quad = k % 256 / 64 * 2 + k % 32 / 16;
  const uint headers = plane_end(n * (push.K / 2));
  RawW raw;
  raw.codes = w.v[superblock * 8 + quad];
  raw.more = w.v[headers / 16 + superblock];
  raw.scale = 0;
#if defined(TYPE_Q5_K)
  raw.high = w.v[(headers + plane_end(n * (push.K / 256) * 16)) / 16 + superblock * 2 + k % 32 / 16];
#endif
  return raw;
}

uint scale_byte(uvec4 header, uint index) { return header[1 + index / 4] >> 8 * (index % 4) & 255u; }

// A superblock has eight pairs of 6-bit scale and minimum: four in bytes 0-3 and 4-7, the low four bits of the others in
// bytes 8-11 and their upper two on top of the first ones.
void unpack_w(RawW raw, uint row, uint k, out vec4 values[CHUNK / 4]) {
  const uint index = k % 256 / 32;
  uint scale, minimum;
  if (index < 4) {
    scale = scale_byte(raw.more, index) & 63u;
    minimum = scale_byte(raw.more, index + 4) & 63u;
  } else {
    const uint low = scale_byte(raw.more, index + 4);
    scale = (low & 15u) | scale_byte(raw.more, index - 4) >> 6 << 4;
    minimum = low >> 4 | scale_byte(raw.more, index) >> 6 << 4;
  }
  const vec2 d = unpackHalf2x16(raw.more.x);
  const float step = d.x * float(scale), offset = d.y * float(minimum);
  const uint shift = (k & 32u) == 0 ? 0 : 4;
  for (uint i = 0; i < 4; ++i) {
    uint codes = raw.codes[i] >> shift & 0x0f0f0f0fu;
#if defined(TYPE_Q5_K)
    codes |= (raw.high[i] >> index & 0x01010101u) << 4;
#endif
    values[i] = unsigned_bytes(codes) * step - offset;
  }
}

#elif defined(TYPE_Q6_K)

uint superblock_of(uint row, uint k) { return row * (push.K / 256) + k / 256; }

// In 128 values the quarters 0 and 2 have their low four bits in the same 32 bytes, as have 1 and 3; all four have their
// upper two in one byte. Sixteen values have an int8 scale. The word `scale` holds it beside the f16 of the superblock.
RawW fetch_w(Quads w, uint n, uint row, uint k) {
  const uint superblock = superblock_of(row, k);
  const uint values = n * (push.K / 256);
  const uint high = plane_end(values * 128), scales = high + plane_end(values * 64);
  const uint factors = scales + plane_end(values * 16);
  const uint half_block = k % 256 / 128, quarter = k % 128 / 32, sixteen = k % 32 / 16;
  RawW raw;
  raw.codes = w.v[superblock * 8 + half_block * 4 + (quarter & 1u) * 2 + sixteen];
  raw.more = w.v[high / 16 + superblock * 4 + half_block * 2 + sixteen];
  const uint scale = Words(w).v[scales / 4 + superblock * 4 + k % 256 / 64] >> 8 * (k / 16 % 4) & 255u;
  const uint factor = Words(w).v[factors / 4 + superblock / 2] >> 16 * (superblock & 1u) & 0xffffu;
  raw.scale = scale << 16 | factor;
  return raw;
}

void unpack_w(RawW raw, uint row, uint k, out vec4 values[CHUNK / 4]) {
  const float scale = unpackHalf2x16(raw.scale).x * float(int(raw.scale) << 8 >> 24);
  const uint quarter = k % 128 / 32;
  for (uint i = 0; i < 4; ++i) {
    const uint low = raw.codes[i] >> 4 * (quarter >> 1) & 0x0f0f0f0fu;
    const uint high = raw.more[i] >> 2 * quarter & 0x03030303u;
    values[i] = (unsigned_bytes(low | high << 4) - 32.0) * scale;
  }
}

#endif
#endif
