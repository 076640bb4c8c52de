// Dot products of unsigned codes with signed eight-bit activations: exact integers, so that every
// instruction set and every tile shape gives the same ones.
#pragma once

#include <utility>

#include "device/cpu/isa/quant_formats.h"

#if defined(TYTO_ISA) && !defined(TYTO_SIMD_GENERIC)
namespace tyto::cpu::TYTO_ISA {

// Bytes 0 and 2, or 1 and 3, of each lane as two 16-bit integers.
TYTO_INLINE __m256i sign_extend_even(__m256i a) {
  return _mm256_srai_epi16(_mm256_slli_epi16(a, 8), 8);
}
TYTO_INLINE __m256i sign_extend_odd(__m256i a) {
  return _mm256_srai_epi16(a, 8);
}

template <typename Body, int... kIndex>
TYTO_INLINE void unroll(std::integer_sequence<int, kIndex...>, const Body& body) {
  (body(std::integral_constant<int, kIndex>()), ...);
}

#if defined(TYTO_SIMD_AVX512) || defined(__AVXVNNI__) || defined(TYTO_VNNI_256)

// Adds groups kFirst to kFirst + kCount - 1 of one block to total[vector][token].
// codes(group, vector) are a panel's; x is [8 groups][T][4].
template <typename Format, int kFirst, int kCount, int V, int T, typename Codes>
TYTO_INLINE void dot_groups(const Codes& codes, const int8_t* x, IVec (&total)[V][T]) {
  unroll(std::make_integer_sequence<int, kCount>(), [&](auto step) __attribute__((always_inline)) {
    constexpr int kGroup = kFirst + decltype(step)::value;
    IVec code[V];
    for (int v = 0; v < V; ++v) code[v] = codes(std::integral_constant<int, kGroup>(), v);
    for (int t = 0; t < T; ++t) {
      const IVec four = broadcast4(x + 4 * (kGroup * T + t));
      for (int v = 0; v < V; ++v) total[v][t] = dot4(total[v][t], code[v], four);
    }
  });
}

template <int kFirst, int kCount, int V, int T, typename Codes>
TYTO_INLINE void dot_wide(const Codes&, const int16_t*, IVec (&)[V][T]) {}  // never needed
template <int kPart>
TYTO_INLINE IVec widened(IVec codes) {  // nor this
  return codes;
}

#else

// Keeps the compiler from putting off additions: it would rather hold all the products first, for
// which there are not enough registers.
TYTO_INLINE void keep_in_register(IVec& value) {
  asm("" : "+x"(value));
}

template <int kPart>
TYTO_INLINE IVec widened(IVec codes) {
  return kPart == 0 ? sign_extend_even(codes) : sign_extend_odd(codes);
}

// Adds groups kFirst to kFirst + kCount - 1 of one block to total. codes(2 g + part, vector) are 16
// bits wide: of group g's four values 0 and 2, then 1 and 3. x is [8 groups][2 parts][T][2].
template <int kFirst, int kCount, int V, int T, typename Codes>
TYTO_INLINE void dot_wide(const Codes& codes, const int16_t* x, IVec (&total)[V][T]) {
  unroll(std::make_integer_sequence<int, 2 * kCount>(),
         [&](auto step) __attribute__((always_inline)) {
           constexpr int kStep = 2 * kFirst + decltype(step)::value;
           IVec code[V];
           for (int v = 0; v < V; ++v) code[v] = codes(std::integral_constant<int, kStep>(), v);
           for (int t = 0; t < T; ++t) {
             const IVec two = broadcast4(x + 2 * (kStep * T + t));
             for (int v = 0; v < V; ++v) {
               total[v][t] = _mm256_add_epi32(total[v][t], _mm256_madd_epi16(code[v], two));
               keep_in_register(total[v][t]);
             }
           }
         });
}

// Products of pairs of codes and activations, in 16 bits. Signed codes lend their sign to the
// activations, since one side must be unsigned.
template <typename Format>
TYTO_INLINE IVec multiply_pairs(IVec code, IVec x) {
  if constexpr (Format::kChain == 0)
    return _mm256_maddubs_epi16(_mm256_abs_epi8(code), _mm256_sign_epi8(x, code));
  else
    return _mm256_maddubs_epi16(code, x);
}

// As above. Products are added in 16 bits kChain times before they are widened. Where codes are
// stored too large, total holds what to begin with in 16 bits, and all is one chain: sums that are
// too large on the way do no harm, since what they come to is not.
template <typename Format, int kFirst, int kCount, int V, int T, typename Codes>
TYTO_INLINE void dot_groups(const Codes& codes, const int8_t* x, IVec (&total)[V][T]) {
  constexpr int kChain = Format::kChain < 1 ? 1 : Format::kChain < kCount ? Format::kChain : kCount;
  IVec pairs[V][T];
  unroll(std::make_integer_sequence<int, kCount>(), [&](auto step) __attribute__((always_inline)) {
    constexpr int kGroup = kFirst + decltype(step)::value;
    constexpr int kInChain = decltype(step)::value % kChain;
    IVec code[V];
    for (int v = 0; v < V; ++v) code[v] = codes(std::integral_constant<int, kGroup>(), v);
    for (int t = 0; t < T; ++t) {
      const IVec four = broadcast4(x + 4 * (kGroup * T + t));
      for (int v = 0; v < V; ++v) {
        const IVec product = multiply_pairs<Format>(code[v], four);
        if constexpr (kInChain > 0)
          pairs[v][t] = _mm256_add_epi16(pairs[v][t], product);
        else if constexpr (Format::kShift >= 0)  // one chain, which begins below zero
          pairs[v][t] = _mm256_add_epi16(total[v][t], product);
        else
          pairs[v][t] = product;
        if constexpr (kInChain < kChain - 1) {
          keep_in_register(pairs[v][t]);
        } else {
          const IVec sums = _mm256_madd_epi16(pairs[v][t], _mm256_set1_epi16(1));
          constexpr bool kFirstSum = kChain == kCount || decltype(step)::value < kChain;
          total[v][t] = kFirstSum ? sums : _mm256_add_epi32(total[v][t], sums);
          keep_in_register(total[v][t]);
        }
      }
    }
  });
}

#endif

// Minus the sum of the activations (BlockActivations), times what the codes are too large by.
template <typename Format>
TYTO_INLINE IVec shifted_start(IVec negated_sum) {
  constexpr int kShift = Format::kShift < 0 ? 0 : Format::kShift;
  return kHasDot4 ? shift_left32<kShift>(negated_sum) : shift_left16<kShift>(negated_sum);
}

// The sum of codes whose negated sum (BlockActivations) this is.
TYTO_INLINE int32_t whole(int32_t negated_sum) {
  if constexpr (kHasDot4) return -negated_sum;
  return -(static_cast<int16_t>(negated_sum) + (negated_sum >> 16));
}

// As scaled_sum is of a block.
template <int T>
TYTO_INLINE float scaled_half_sum(const BlockActivations& x, size_t block, size_t half, int t) {
  const size_t at = static_cast<size_t>(t);
  return x.scales[block * T + at] *
         static_cast<float>(whole(x.negated_half_sums[(2 * block + half) * T + at]));
}

// Without a dot-product instruction signed codes are best multiplied in 16 bits, once they have
// been widened for many tokens.
template <typename Format>
constexpr bool kWidened = !kHasDot4 && Format::kChain == 0;

// acc += one block's contribution. Every path uses this, so that the order of the float operations
// is the same for any number of tokens.
template <typename Format, bool kWide, int V, int T, typename Codes, typename Factor,
          typename Minimum>
TYTO_INLINE void add_block(const Codes& codes, const Factor& factor, const Minimum& minimum,
                           const BlockActivations& x, size_t block, Vec (&acc)[V][T]) {
  constexpr int kHalves = Format::kHalves, kCount = kGroups / kHalves;
  unroll(
      std::make_integer_sequence<int, kHalves>(), [&](auto index) __attribute__((always_inline)) {
        constexpr int kHalf = decltype(index)::value;
        IVec total[V][T];
        for (int t = 0; t < T; ++t) {
          IVec start = broadcast(int32_t{0});
          if constexpr (Format::kShift >= 0) {
            const int32_t* less = kHalves == 1 ? x.negated_sum + block * T
                                               : x.negated_half_sums + (2 * block + kHalf) * T;
            start = shifted_start<Format>(broadcast(less[t]));
          }
          for (int v = 0; v < V; ++v) total[v][t] = start;
        }
        if constexpr (kWide)
          dot_wide<kHalf * kCount, kCount>(codes, x.wide_codes + block * kBlockValues * T, total);
        else
          dot_groups<Format, kHalf * kCount, kCount>(codes, x.codes + block * kBlockValues * T,
                                                     total);
        Vec scale[V];
        for (int v = 0; v < V; ++v) scale[v] = factor(kHalf, v);
        for (int t = 0; t < T; ++t) {
          const Vec x_scale = broadcast(x.scales[block * T + t]);
          for (int v = 0; v < V; ++v)
            acc[v][t] = fma(to_float(total[v][t]), mul(scale[v], x_scale), acc[v][t]);
        }
      });
  if constexpr (Format::kHasMin)
    for (size_t half = 0; half < kHalves; ++half)
      for (int v = 0; v < V; ++v) {
        const Vec least = minimum(half, v);
        for (int t = 0; t < T; ++t) {
          const float sum =
              kHalves == 1 ? x.scaled_sum[block * T + t] : scaled_half_sum<T>(x, block, half, t);
          acc[v][t] = fma(least, broadcast(sum), acc[v][t]);
        }
      }
}

}  // namespace tyto::cpu::TYTO_ISA
#endif
