// Dot products of unsigned codes with signed eight-bit activations: exact integers, so that every
// instruction set and every tile shape gives the same ones.
#pragma once

#include <utility>

#include "device/cpu/isa/simd.h"
#include "device/cpu/packed_weights.h"
#include "tensor/quant_blocks.h"

#if defined(TYTO_ISA) && !defined(TYTO_SIMD_GENERIC)
namespace tyto::cpu::TYTO_ISA {

// How one packed block (packed_weights.h) becomes vectors: codes as bytes, scales as floats.
//
// Format<type> has
//   kHalves   scales per block: 2 where every 16 values have their own
//   kHasMin   a value is factor * code + minimum
//   kShift    codes are stored 2^kShift too large; -1 when they are not
//   kChain    without a dot-product instruction: products of code and activation pairs that can be
//             added in 16 bits, all those of a scale where kShift is not -1. 0: the codes are
//             signed, and not even one can without care.
//   codes<g>  four values of each row of the v-th vector of a panel
//   Scales    factors and minima of the unit (scale_blocks blocks) it was made from
// and may be made from the matrix's type, where one Format serves several.

constexpr size_t kPanelVecs = kPanelRows / kLanes;

struct Nibbles {
  template <int kGroup>
  TYTO_INLINE IVec codes(const uint8_t* block, size_t v) {
    const IVec both = load_bytes(block + 64 * (kGroup % 4) + v * kVecBytes);
    if constexpr (kGroup < 4) return and_bits(both, broadcast_byte(15));
    return and_bits(shift_right16<4>(both), broadcast_byte(15));
  }
};

struct NibblesAndBits {
  template <int kGroup>
  TYTO_INLINE IVec codes(const uint8_t* block, size_t v) {
    const IVec bits = load_bytes(block + 256 + v * kVecBytes);
    const IVec fifth = kGroup < 4 ? shift_left16 < kGroup<4 ? 4 - kGroup : 0>(bits)
                                  : shift_right16<kGroup >= 4 ? kGroup - 4 : 0>(bits);
    return or_bits(Nibbles::codes<kGroup>(block, v), and_bits(fifth, broadcast_byte(16)));
  }
};

struct NibblesAndPairs {
  template <int kGroup>
  TYTO_INLINE IVec codes(const uint8_t* block, size_t v) {
    const IVec pairs = load_bytes(block + 256 + 64 * (kGroup / 4) + v * kVecBytes);
    constexpr int kUp = 4 - 2 * (kGroup % 4);
    const IVec high = kUp >= 0 ? shift_left16<kUp >= 0 ? kUp : 0>(pairs)
                               : shift_right16 < kUp<0 ? -kUp : 0>(pairs);
    return or_bits(Nibbles::codes<kGroup>(block, v), and_bits(high, broadcast_byte(48)));
  }
};

struct Pairs {
  template <int kGroup>
  TYTO_INLINE IVec codes(const uint8_t* block, size_t v) {
    const IVec pairs = load_bytes(block + 64 * (kGroup / 4) + v * kVecBytes);
    return and_bits(shift_right16<2 * (kGroup % 4)>(pairs), broadcast_byte(3));
  }
};

struct PairsAndBits {
  template <int kGroup>
  TYTO_INLINE IVec codes(const uint8_t* block, size_t v) {
    const IVec bits = load_bytes(block + 128 + v * kVecBytes);
    const IVec third = kGroup < 2 ? shift_left16 < kGroup<2 ? 2 - kGroup : 0>(bits)
                                  : shift_right16<kGroup >= 2 ? kGroup - 2 : 0>(bits);
    return or_bits(Pairs::codes<kGroup>(block, v), and_bits(third, broadcast_byte(4)));
  }
};

// What sixteen codes stand for, 2^shift too large, or as it is where that is -1. (Made by the
// compiler: no function of std::array is left in a file that is built for one instruction set.)
struct LevelBytes {
  uint8_t at[16];
};
constexpr LevelBytes level_bytes(const std::array<int8_t, 16>& levels, int shift) {
  LevelBytes result = {};
  for (size_t i = 0; i < 16; ++i)
    result.at[i] = static_cast<uint8_t>(levels[i] + (shift < 0 ? 0 : 1 << shift));
  return result;
}

template <const std::array<int8_t, 16>& kLevels, int kShift>
struct LookedUp {
  template <int kGroup>
  TYTO_INLINE IVec codes(const uint8_t* block, size_t v) {
    static constexpr LevelBytes kTable = level_bytes(kLevels, kShift);
    return look_up(load_table(kTable.at), Nibbles::codes<kGroup>(block, v));
  }
};

// With the table that the matrix's type has. A shift of seven bits is another first bit.
template <int kShift>
struct LookedUpByType {
  static_assert(kShift == -1 || kShift == 7);
  IVec table;

  [[gnu::always_inline]] explicit LookedUpByType(DType type)
      : table(load_table(grid_levels(type))) {
    if constexpr (kShift == 7) table = xor_bits(table, broadcast_byte(128));
  }
  template <int kGroup>
  [[gnu::always_inline]] IVec codes(const uint8_t* block, size_t v) const {
    return look_up(table, Nibbles::codes<kGroup>(block, v));
  }
};

struct Bytes {
  template <int kGroup>
  TYTO_INLINE IVec codes(const uint8_t* block, size_t v) {
    const IVec stored = load_bytes(block + 64 * kGroup + v * kVecBytes);
    if constexpr (kHasDot4) return stored;
    return xor_bits(stored, broadcast_byte(128));
  }
};

struct OneScale {
  static constexpr int kHalves = 1;
  static constexpr bool kHasMin = false;
  struct Scales {
    Vec d;
    TYTO_INLINE Scales at(const uint8_t* unit, size_t v) {
      return {load_f16(unit + 2 * kLanes * v)};
    }
    [[gnu::always_inline]] Vec factor(size_t, size_t) const { return d; }
    [[gnu::always_inline]] Vec minimum(size_t, size_t) const { return zero(); }
  };
};

struct ScaleAndMin {
  static constexpr int kHalves = 1;
  static constexpr bool kHasMin = true;
  struct Scales {
    Vec d, m;
    TYTO_INLINE Scales at(const uint8_t* unit, size_t v) {
      return {load_f16(unit + 2 * kLanes * v), load_f16(unit + 32 + 2 * kLanes * v)};
    }
    [[gnu::always_inline]] Vec factor(size_t, size_t) const { return d; }
    [[gnu::always_inline]] Vec minimum(size_t, size_t) const { return m; }
  };
};

struct KScales {
  static constexpr int kHalves = 1;
  static constexpr bool kHasMin = true;
  struct Scales {
    Vec d, negated_dmin;
    const uint8_t* blocks;
    TYTO_INLINE Scales at(const uint8_t* unit, size_t v) {
      const Vec dmin = load_f16(unit + 32 + 2 * kLanes * v);
      return {load_f16(unit + 2 * kLanes * v), sub(zero(), dmin), unit + 64 + kLanes * v};
    }
    [[gnu::always_inline]] Vec factor(size_t block, size_t) const {
      return mul(d, load_u8(blocks + 32 * block));
    }
    [[gnu::always_inline]] Vec minimum(size_t block, size_t) const {
      return mul(negated_dmin, load_u8(blocks + 32 * block + 16));
    }
  };
};

struct HalfScales {
  static constexpr int kHalves = 2;
  static constexpr bool kHasMin = false;
  struct Scales {
    Vec d;
    const uint8_t* halves;
    TYTO_INLINE Scales at(const uint8_t* unit, size_t v) {
      return {load_f16(unit + 2 * kLanes * v), unit + 32 + kLanes * v};
    }
    [[gnu::always_inline]] Vec factor(size_t block, size_t half) const {
      return mul(d, load_s8(halves + 32 * block + 16 * half));
    }
    [[gnu::always_inline]] Vec minimum(size_t, size_t) const { return zero(); }
  };
};

// q2_k's: a byte has the scale of a half and its minimum.
struct NibbleScales {
  static constexpr int kHalves = 2;
  static constexpr bool kHasMin = true;
  struct Scales {
    Vec d, negated_dmin;
    const uint8_t* halves;
    TYTO_INLINE Scales at(const uint8_t* unit, size_t v) {
      const Vec dmin = load_f16(unit + 32 + 2 * kLanes * v);
      return {load_f16(unit + 2 * kLanes * v), sub(zero(), dmin), unit + 64 + kLanes * v};
    }
    [[gnu::always_inline]] Vec factor(size_t block, size_t half) const {
      return mul(d, load_low_nibbles(halves + 32 * block + 16 * half));
    }
    [[gnu::always_inline]] Vec minimum(size_t block, size_t half) const {
      return mul(negated_dmin, load_high_nibbles(halves + 32 * block + 16 * half));
    }
  };
};

struct BlockScales {
  static constexpr int kHalves = 1;
  static constexpr bool kHasMin = false;
  struct Scales {
    Vec d;
    const uint8_t* blocks;
    TYTO_INLINE Scales at(const uint8_t* unit, size_t v) {
      return {load_f16(unit + 2 * kLanes * v), unit + 32 + kLanes * v};
    }
    [[gnu::always_inline]] Vec factor(size_t block, size_t) const {
      return mul(d, load_s8(blocks + 16 * block));
    }
    [[gnu::always_inline]] Vec minimum(size_t, size_t) const { return zero(); }
  };
};

struct PowerScale {
  static constexpr int kHalves = 1;
  static constexpr bool kHasMin = false;
  struct Scales {
    Vec power;
    TYTO_INLINE Scales at(const uint8_t* unit, size_t v) {
      return {load_bf16(unit + 2 * kLanes * v)};
    }
    [[gnu::always_inline]] Vec factor(size_t, size_t) const { return power; }
    [[gnu::always_inline]] Vec minimum(size_t, size_t) const { return zero(); }
  };
};

struct GridScales {
  static constexpr int kHalves = 2;
  static constexpr bool kHasMin = false;
  struct Scales {
    Vec d;
    const uint8_t* halves;
    TYTO_INLINE Scales at(const uint8_t* unit, size_t v) {
      return {load(reinterpret_cast<const float*>(unit) + kLanes * v), unit + 64 + kLanes * v};
    }
    [[gnu::always_inline]] Vec factor(size_t block, size_t half) const {
      return mul(d, load_s8(halves + 32 * block + 16 * half));
    }
    [[gnu::always_inline]] Vec minimum(size_t, size_t) const { return zero(); }
  };
};

template <DType kType>
struct Format;

// Whose Format serves every type on a grid.
constexpr DType kGridType = DType::iq3_s;

template <typename F>
TYTO_INLINE F format_for(DType type) {
  if constexpr (requires { F(type); })
    return F(type);
  else
    return F{};
}

template <>
struct Format<DType::q8_0> : Bytes, OneScale {
  static constexpr int kShift = kHasDot4 ? 7 : -1, kChain = 0;
};
template <>
struct Format<DType::q4_0> : Nibbles, OneScale {
  static constexpr int kShift = 3, kChain = 8;  // 8 * 2 * 8 * 127 < 2^15
};
template <>
struct Format<DType::q4_1> : Nibbles, ScaleAndMin {
  static constexpr int kShift = -1, kChain = 8;  // 8 * 2 * 15 * 127 < 2^15
};
template <>
struct Format<DType::q5_0> : NibblesAndBits, OneScale {
  static constexpr int kShift = 4, kChain = 8;  // 8 * 2 * 16 * 127 < 2^15
};
template <>
struct Format<DType::q5_1> : NibblesAndBits, ScaleAndMin {
  static constexpr int kShift = -1, kChain = 4;  // 4 * 2 * 31 * 127 < 2^15
};
template <>
struct Format<DType::q4_k> : Nibbles, KScales {
  static constexpr int kShift = -1, kChain = 8;
};
template <>
struct Format<DType::q5_k> : NibblesAndBits, KScales {
  static constexpr int kShift = -1, kChain = 4;
};
template <>
struct Format<DType::q6_k> : NibblesAndPairs, HalfScales {
  static constexpr int kShift = 5, kChain = 4;  // 4 * 2 * 32 * 127 < 2^15
};

template <>
struct Format<DType::q2_k> : Pairs, NibbleScales {
  static constexpr int kShift = -1, kChain = 8;
};
template <>
struct Format<DType::q3_k> : PairsAndBits, HalfScales {
  static constexpr int kShift = 2, kChain = 8;
};
// Levels of up to 127 are multiplied as q8_0's codes are.
constexpr int kLevelShift = kHasDot4 ? 7 : -1;
template <>
struct Format<DType::iq4_nl> : LookedUp<kNonLinear, kLevelShift>, OneScale {
  static constexpr int kShift = kLevelShift, kChain = 0;
};
template <>
struct Format<DType::iq4_xs> : LookedUp<kNonLinear, kLevelShift>, BlockScales {
  static constexpr int kShift = kLevelShift, kChain = 0;
};
template <>
struct Format<DType::mxfp4> : LookedUp<kTwiceFp4, 4>, PowerScale {
  static constexpr int kShift = 4, kChain = 8;  // 8 * 2 * 12 * 127 < 2^15
};
template <>
struct Format<kGridType> : LookedUpByType<kLevelShift>, GridScales {
  [[gnu::always_inline]] explicit Format(DType type) : LookedUpByType(type) {}
  static constexpr int kShift = kLevelShift, kChain = 0;
};

}  // namespace tyto::cpu::TYTO_ISA
#endif

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
