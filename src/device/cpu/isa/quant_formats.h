// How one packed block (packed_layout.h) becomes vectors: codes as bytes, scales as floats.
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
#pragma once

#include "device/cpu/grid_panels.h"
#include "device/cpu/isa/simd.h"
#include "device/cpu/packed_layout.h"
#include "tensor/quant_iq_blocks.h"

#if defined(TYTO_ISA) && !defined(TYTO_SIMD_GENERIC)
namespace tyto::cpu::TYTO_ISA {

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
