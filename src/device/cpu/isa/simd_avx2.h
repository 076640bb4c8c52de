// simd.h for AVX2 with FMA and F16C: eight lanes. With AVX-VNNI four-byte dot products are one
// instruction; without it they take three, and the kernels delay two of them (quant_dot.h).
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#if defined(TYTO_ISA) && defined(TYTO_SIMD_AVX2)
namespace tyto::cpu::TYTO_ISA {

constexpr size_t kLanes = 8;
using Vec = __m256;
using IVec = __m256i;

TYTO_INLINE Vec zero() {
  return _mm256_setzero_ps();
}
TYTO_INLINE Vec broadcast(float value) {
  return _mm256_set1_ps(value);
}
TYTO_INLINE Vec load(const float* p) {
  return _mm256_loadu_ps(p);
}
TYTO_INLINE void store(float* p, Vec v) {
  _mm256_storeu_ps(p, v);
}
TYTO_INLINE Vec load_f16(const void* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}
TYTO_INLINE void store_f16(void* p, Vec v) {
  _mm_storeu_si128(static_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
TYTO_INLINE Vec load_bf16(const void* p) {
  const __m128i half = _mm_loadu_si128(static_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}
TYTO_INLINE Vec load_u8(const uint8_t* p) {
  return _mm256_cvtepi32_ps(
      _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
// The low and the high four bits of each byte.
TYTO_INLINE Vec load_low_nibbles(const uint8_t* p) {
  const IVec bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  return _mm256_cvtepi32_ps(_mm256_and_si256(bytes, _mm256_set1_epi32(15)));
}
TYTO_INLINE Vec load_high_nibbles(const uint8_t* p) {
  const IVec bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  return _mm256_cvtepi32_ps(_mm256_srli_epi32(bytes, 4));
}
TYTO_INLINE Vec load_s8(const void* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p))));
}
// The 2 kLanes bf16 values at p, apart: even places, odd places.
TYTO_INLINE void load_bf16_pairs(const void* p, Vec& even, Vec& odd) {
  const IVec both = _mm256_loadu_si256(static_cast<const __m256i*>(p));
  even = _mm256_castsi256_ps(_mm256_slli_epi32(both, 16));
  odd =
      _mm256_castsi256_ps(_mm256_and_si256(both, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
}

TYTO_INLINE Vec add(Vec a, Vec b) {
  return _mm256_add_ps(a, b);
}
TYTO_INLINE Vec sub(Vec a, Vec b) {
  return _mm256_sub_ps(a, b);
}
TYTO_INLINE Vec mul(Vec a, Vec b) {
  return _mm256_mul_ps(a, b);
}
TYTO_INLINE Vec div(Vec a, Vec b) {
  return _mm256_div_ps(a, b);
}
TYTO_INLINE Vec max(Vec a, Vec b) {
  return _mm256_max_ps(a, b);
}
TYTO_INLINE Vec min(Vec a, Vec b) {
  return _mm256_min_ps(a, b);
}
TYTO_INLINE Vec fma(Vec a, Vec b, Vec c) {
  return _mm256_fmadd_ps(a, b, c);
}
TYTO_INLINE Vec abs(Vec a) {
  return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}
TYTO_INLINE Vec round(Vec a) {
  return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// a * 2^n for whole n within [-126, 127].
TYTO_INLINE Vec scale_by_power(Vec a, Vec n) {
  const IVec exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return _mm256_mul_ps(a, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
}

TYTO_INLINE float sum(Vec v) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
TYTO_INLINE float largest(Vec v) {
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

// Lane i: the sum of v[i]'s lanes, all in the same order.
TYTO_INLINE Vec sums_of(const Vec (&v)[kLanes]) {
  Vec fours[4], twos[2];
  for (int i = 0; i < 4; ++i)
    fours[i] = _mm256_add_ps(_mm256_permute2f128_ps(v[2 * i], v[2 * i + 1], 0x20),
                             _mm256_permute2f128_ps(v[2 * i], v[2 * i + 1], 0x31));
  for (int i = 0; i < 2; ++i)
    twos[i] = _mm256_add_ps(_mm256_shuffle_ps(fours[2 * i], fours[2 * i + 1], 0x44),
                            _mm256_shuffle_ps(fours[2 * i], fours[2 * i + 1], 0xee));
  const Vec ones = _mm256_add_ps(_mm256_shuffle_ps(twos[0], twos[1], 0x88),
                                 _mm256_shuffle_ps(twos[0], twos[1], 0xdd));
  // Lane 4 j + i has the sum of v[2 i + j].
  return _mm256_permutevar8x32_ps(ones, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

// Row i, lane j becomes row j, lane i.
TYTO_INLINE void transpose(Vec (&v)[kLanes]) {
  Vec four[kLanes];  // [i + c]: columns c and 4 + c of rows i to i + 3
  for (int i = 0; i < 8; i += 4) {
    const Vec a = _mm256_unpacklo_ps(v[i], v[i + 1]), b = _mm256_unpackhi_ps(v[i], v[i + 1]);
    const Vec c = _mm256_unpacklo_ps(v[i + 2], v[i + 3]),
              d = _mm256_unpackhi_ps(v[i + 2], v[i + 3]);
    four[i] = _mm256_shuffle_ps(a, c, 0x44);
    four[i + 1] = _mm256_shuffle_ps(a, c, 0xee);
    four[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
    four[i + 3] = _mm256_shuffle_ps(b, d, 0xee);
  }
  for (int c = 0; c < 4; ++c) {
    v[c] = _mm256_permute2f128_ps(four[c], four[4 + c], 0x20);
    v[4 + c] = _mm256_permute2f128_ps(four[c], four[4 + c], 0x31);
  }
}

TYTO_INLINE IVec load_bytes(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
TYTO_INLINE void store_bytes(void* p, IVec v) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), v);
}
TYTO_INLINE IVec broadcast(int32_t value) {
  return _mm256_set1_epi32(value);
}
TYTO_INLINE IVec broadcast_byte(uint8_t value) {
  return _mm256_set1_epi8(static_cast<char>(value));
}
// Sixteen bytes, and for each byte of `places` (all below 16) the one in that place.
TYTO_INLINE IVec load_table(const void* p) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}
TYTO_INLINE IVec look_up(IVec table, IVec places) {
  return _mm256_shuffle_epi8(table, places);
}
TYTO_INLINE IVec and_bits(IVec a, IVec b) {
  return _mm256_and_si256(a, b);
}
TYTO_INLINE IVec or_bits(IVec a, IVec b) {
  return _mm256_or_si256(a, b);
}
TYTO_INLINE IVec xor_bits(IVec a, IVec b) {
  return _mm256_xor_si256(a, b);
}
template <int kBits>
TYTO_INLINE IVec shift_right16(IVec a) {
  return _mm256_srli_epi16(a, kBits);
}
template <int kBits>
TYTO_INLINE IVec shift_left16(IVec a) {
  return _mm256_slli_epi16(a, kBits);
}
template <int kBits>
TYTO_INLINE IVec shift_left32(IVec a) {
  return _mm256_slli_epi32(a, kBits);
}
TYTO_INLINE Vec to_float(IVec a) {
  return _mm256_cvtepi32_ps(a);
}
TYTO_INLINE IVec broadcast4(const void* p) {
  int32_t four;
  __builtin_memcpy(&four, p, sizeof four);
  return _mm256_set1_epi32(four);
}
#if defined(__AVXVNNI__) || defined(TYTO_VNNI_256)
constexpr bool kHasDot4 = true;
// Four values of each lane's codes (unsigned) times four of the activations' (signed).
TYTO_INLINE IVec dot4(IVec total, IVec codes, IVec x) {
#if defined(__AVXVNNI__)
  return _mm256_dpbusd_avx_epi32(total, codes, x);
#else
  return _mm256_dpbusd_epi32(total, codes, x);
#endif
}
#else
constexpr bool kHasDot4 = false;
#endif

}  // namespace tyto::cpu::TYTO_ISA
#endif
