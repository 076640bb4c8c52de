// simd.h for AVX-512 with VNNI: sixteen lanes, four-byte dot products in one instruction.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#if defined(TYTO_ISA) && defined(TYTO_SIMD_AVX512)
namespace tyto::cpu::TYTO_ISA {

constexpr size_t kLanes = 16;
using Vec = __m512;
using IVec = __m512i;

TYTO_INLINE Vec zero() {
  return _mm512_setzero_ps();
}
TYTO_INLINE Vec broadcast(float value) {
  return _mm512_set1_ps(value);
}
TYTO_INLINE Vec load(const float* p) {
  return _mm512_loadu_ps(p);
}
TYTO_INLINE void store(float* p, Vec v) {
  _mm512_storeu_ps(p, v);
}
TYTO_INLINE Vec load_f16(const void* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
}
TYTO_INLINE void store_f16(void* p, Vec v) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
TYTO_INLINE Vec load_bf16(const void* p) {
  const __m256i half = _mm256_loadu_si256(static_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}
TYTO_INLINE Vec load_u8(const uint8_t* p) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
// The low and the high four bits of each byte.
TYTO_INLINE Vec load_low_nibbles(const uint8_t* p) {
  const IVec bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm512_cvtepi32_ps(_mm512_and_si512(bytes, _mm512_set1_epi32(15)));
}
TYTO_INLINE Vec load_high_nibbles(const uint8_t* p) {
  const IVec bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm512_cvtepi32_ps(_mm512_srli_epi32(bytes, 4));
}
TYTO_INLINE Vec load_s8(const void* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))));
}
// The 2 kLanes bf16 values at p, apart: even places, odd places.
TYTO_INLINE void load_bf16_pairs(const void* p, Vec& even, Vec& odd) {
  const IVec both = _mm512_loadu_si512(p);
  even = _mm512_castsi512_ps(_mm512_slli_epi32(both, 16));
  odd =
      _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}

TYTO_INLINE Vec add(Vec a, Vec b) {
  return _mm512_add_ps(a, b);
}
TYTO_INLINE Vec sub(Vec a, Vec b) {
  return _mm512_sub_ps(a, b);
}
TYTO_INLINE Vec mul(Vec a, Vec b) {
  return _mm512_mul_ps(a, b);
}
TYTO_INLINE Vec div(Vec a, Vec b) {
  return _mm512_div_ps(a, b);
}
TYTO_INLINE Vec max(Vec a, Vec b) {
  return _mm512_max_ps(a, b);
}
TYTO_INLINE Vec min(Vec a, Vec b) {
  return _mm512_min_ps(a, b);
}
TYTO_INLINE Vec fma(Vec a, Vec b, Vec c) {
  return _mm512_fmadd_ps(a, b, c);
}
TYTO_INLINE Vec abs(Vec a) {
  return _mm512_abs_ps(a);
}
TYTO_INLINE Vec round(Vec a) {
  return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// a * 2^n for whole n within [-126, 127].
TYTO_INLINE Vec scale_by_power(Vec a, Vec n) {
  return _mm512_scalef_ps(a, n);
}

TYTO_INLINE __m256 fold(Vec v) {  // lane i + lane i + 8
  return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
}
TYTO_INLINE float sum(Vec v) {
  const __m256 eight = fold(v);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
TYTO_INLINE float largest(Vec v) {
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

// Lane i: the sum of v[i]'s lanes, all in the same order.
TYTO_INLINE Vec sums_of(const Vec (&v)[kLanes]) {
  Vec eights[8], fours[4], twos[2];
  for (int i = 0; i < 8; ++i)
    eights[i] = _mm512_add_ps(_mm512_shuffle_f32x4(v[2 * i], v[2 * i + 1], 0x44),
                              _mm512_shuffle_f32x4(v[2 * i], v[2 * i + 1], 0xee));
  for (int i = 0; i < 4; ++i)
    fours[i] = _mm512_add_ps(_mm512_shuffle_f32x4(eights[2 * i], eights[2 * i + 1], 0x88),
                             _mm512_shuffle_f32x4(eights[2 * i], eights[2 * i + 1], 0xdd));
  for (int i = 0; i < 2; ++i)
    twos[i] = _mm512_add_ps(_mm512_shuffle_ps(fours[2 * i], fours[2 * i + 1], 0x44),
                            _mm512_shuffle_ps(fours[2 * i], fours[2 * i + 1], 0xee));
  const Vec ones = _mm512_add_ps(_mm512_shuffle_ps(twos[0], twos[1], 0x88),
                                 _mm512_shuffle_ps(twos[0], twos[1], 0xdd));
  // Lane 4 j + i has the sum of v[4 i + j].
  const IVec order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm512_permutexvar_ps(order, ones);
}

TYTO_INLINE Vec low_pairs(Vec a, Vec b) {
  return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
}
TYTO_INLINE Vec high_pairs(Vec a, Vec b) {
  return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
}
// Row i, lane j becomes row j, lane i.
TYTO_INLINE void transpose(Vec (&v)[kLanes]) {
  Vec four[kLanes];  // [4 i + c]: columns 4 lane / 4 + c of rows 4 i to 4 i + 3
  for (int i = 0; i < 16; i += 4) {
    const Vec a = _mm512_unpacklo_ps(v[i], v[i + 1]), b = _mm512_unpackhi_ps(v[i], v[i + 1]);
    const Vec c = _mm512_unpacklo_ps(v[i + 2], v[i + 3]),
              d = _mm512_unpackhi_ps(v[i + 2], v[i + 3]);
    four[i] = low_pairs(a, c);
    four[i + 1] = high_pairs(a, c);
    four[i + 2] = low_pairs(b, d);
    four[i + 3] = high_pairs(b, d);
  }
  for (int c = 0; c < 4; ++c) {
    const Vec even = _mm512_shuffle_f32x4(four[c], four[4 + c], 0x88);
    const Vec even2 = _mm512_shuffle_f32x4(four[8 + c], four[12 + c], 0x88);
    const Vec odd = _mm512_shuffle_f32x4(four[c], four[4 + c], 0xdd);
    const Vec odd2 = _mm512_shuffle_f32x4(four[8 + c], four[12 + c], 0xdd);
    v[c] = _mm512_shuffle_f32x4(even, even2, 0x88);
    v[4 + c] = _mm512_shuffle_f32x4(odd, odd2, 0x88);
    v[8 + c] = _mm512_shuffle_f32x4(even, even2, 0xdd);
    v[12 + c] = _mm512_shuffle_f32x4(odd, odd2, 0xdd);
  }
}

TYTO_INLINE IVec load_bytes(const void* p) {
  return _mm512_loadu_si512(p);
}
TYTO_INLINE void store_bytes(void* p, IVec v) {
  _mm512_storeu_si512(p, v);
}
TYTO_INLINE IVec broadcast(int32_t value) {
  return _mm512_set1_epi32(value);
}
TYTO_INLINE IVec broadcast_byte(uint8_t value) {
  return _mm512_set1_epi8(static_cast<char>(value));
}
// Sixteen bytes, and for each byte of `places` (all below 16) the one in that place.
TYTO_INLINE IVec load_table(const void* p) {
  return _mm512_broadcast_i32x4(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}
TYTO_INLINE IVec look_up(IVec table, IVec places) {
  return _mm512_shuffle_epi8(table, places);
}
TYTO_INLINE IVec and_bits(IVec a, IVec b) {
  return _mm512_and_si512(a, b);
}
TYTO_INLINE IVec or_bits(IVec a, IVec b) {
  return _mm512_or_si512(a, b);
}
TYTO_INLINE IVec xor_bits(IVec a, IVec b) {
  return _mm512_xor_si512(a, b);
}
template <int kBits>
TYTO_INLINE IVec shift_right16(IVec a) {
  return _mm512_srli_epi16(a, kBits);
}
template <int kBits>
TYTO_INLINE IVec shift_left16(IVec a) {
  return _mm512_slli_epi16(a, kBits);
}
template <int kBits>
TYTO_INLINE IVec shift_left32(IVec a) {
  return _mm512_slli_epi32(a, kBits);
}
TYTO_INLINE Vec to_float(IVec a) {
  return _mm512_cvtepi32_ps(a);
}
constexpr bool kHasDot4 = true;
// Four values of each lane's codes (unsigned) times four of the activations' (signed).
TYTO_INLINE IVec dot4(IVec total, IVec codes, IVec x) {
  return _mm512_dpbusd_epi32(total, codes, x);
}
TYTO_INLINE IVec broadcast4(const void* p) {
  int32_t four;
  __builtin_memcpy(&four, p, sizeof four);
  return _mm512_set1_epi32(four);
}

}  // namespace tyto::cpu::TYTO_ISA
#endif
