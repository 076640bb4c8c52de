// The block layouts whose codes are places in a table: of sixteen numbers (iq4, mxfp4), or of whole
// groups of four or eight values that lie on a grid (iq1, iq2, iq3; quant_grids.h). All of them but
// mxfp4 have f16 factors, and every product is exact in f32.
#pragma once

#include "tensor/quant_blocks.h"

namespace tyto {

// What the codes of iq4_nl and iq4_xs stand for: closer together near zero.
inline constexpr std::array<int8_t, 16> kNonLinear = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                      1,    13,   25,  38,  53,  69,  89,  113};

struct BlockIQ4NL {  // d * kNonLinear[code]
  static constexpr size_t kValues = kSimpleValues;
  Half d;
  Nibbles32 code;
};

// Eight sub-blocks of 32 values: d * (scale - 32) * kNonLinear[code]. A scale has its low four bits
// in nibble s of `low`, its high two in bits 2 s on of `high`.
struct BlockIQ4XS {
  static constexpr size_t kValues = kSuperValues;
  Half d;
  std::array<uint8_t, 2> high;
  uint8_t low[4];
  Nibbles32 code[8];

  int scale(size_t s) const {
    const int bits = std::bit_cast<uint16_t>(high) >> (2 * s);
    return ((low[s / 2] >> (4 * (s % 2)) & 15) | ((bits & 3) << 4)) - 32;
  }
};

// Twice the values of OCP's four-bit floats: a sign, two bits of exponent, one of mantissa.
inline constexpr std::array<int8_t, 16> kTwiceFp4 = {0, 1,  2,  3,  4,  6,  8,  12,
                                                     0, -1, -2, -3, -4, -6, -8, -12};

struct BlockMXFP4 {  // 2^(exponent - 127) * fp4[code]
  static constexpr size_t kValues = kSimpleValues;
  uint8_t exponent;
  Nibbles32 code;
};

// Half of 2^(exponent - 127), for kTwiceFp4. The two smallest are below f32's normal numbers.
inline float half_power(uint8_t exponent) {
  return std::bit_cast<float>(exponent < 2 ? 0x00200000u << exponent : (exponent - 1u) << 23);
}

// In the iq2 and iq3 types the grid holds magnitudes, and each value has a sign bit. Where only
// seven bits are stored for eight values, the number of negative ones is even.
struct BlockIQ2XXS {  // d * (scale + 1/2) / 4 * +-grid
  static constexpr size_t kValues = kSuperValues;
  Half d;
  struct {
    uint8_t grid[4];
    std::array<uint8_t, 4> signs_and_scale;  // four times seven bits, then four
  } group[8];                                // of 32 values
};

struct BlockIQ2XS {  // d * (scale + 1/2) / 4 * +-grid, a scale for 16 values
  static constexpr size_t kValues = kSuperValues;
  Half d;
  std::array<uint8_t, 2> code[32];  // nine bits of grid, seven of signs
  uint8_t scales[8];
};

struct BlockIQ2S {  // as iq2_xs; two more bits of each place lie in `high`
  static constexpr size_t kValues = kSuperValues;
  Half d;
  uint8_t grid[32];
  uint8_t signs[32];
  uint8_t high[8];
  uint8_t scales[8];
};

struct BlockIQ3XXS {  // d * (scale + 1/2) / 2 * +-grid
  static constexpr size_t kValues = kSuperValues;
  Half d;
  uint8_t grid[64];
  std::array<uint8_t, 4> signs_and_scale[8];  // as iq2_xxs has them
};

struct BlockIQ3S {  // d * (2 scale + 1) * +-grid, a scale for 32 values
  static constexpr size_t kValues = kSuperValues;
  Half d;
  uint8_t grid[64];
  uint8_t high[8];  // bit i is the ninth bit of the place of group i of four values
  uint8_t signs[32];
  uint8_t scales[4];
};

// In the iq1 types the grid holds -1, 0 and 1, and a bit says whether an eighth is added to the
// values or taken away.
struct BlockIQ1S {  // d * (2 scale + 1) * (grid +- 1/8)
  static constexpr size_t kValues = kSuperValues;
  Half d;
  uint8_t grid[32];
  std::array<uint8_t, 2> high[8];  // four times three bits of grid, three of scale, the sign
};

struct BlockIQ1M {  // as iq1_s, with a scale for 16 values and a sign for eight
  static constexpr size_t kValues = kSuperValues;
  uint8_t grid[32];
  uint8_t high[16];                  // three bits of grid and the sign, for two groups of eight
  std::array<uint8_t, 2> scales[4];  // four times three bits; the top nibbles are those of d

  uint16_t word(size_t i) const { return std::bit_cast<uint16_t>(scales[i]); }
  Half d() const {
    const int bits =
        word(0) >> 12 | (word(1) >> 12) << 4 | (word(2) >> 12) << 8 | (word(3) >> 12) << 12;
    return std::bit_cast<Half>(static_cast<uint16_t>(bits));
  }
};

static_assert(sizeof(BlockIQ4NL) == 18 && sizeof(BlockIQ4XS) == 136 && sizeof(BlockMXFP4) == 17);
static_assert(sizeof(BlockIQ2XXS) == 66 && sizeof(BlockIQ2XS) == 74 && sizeof(BlockIQ2S) == 82);
static_assert(sizeof(BlockIQ3XXS) == 98 && sizeof(BlockIQ3S) == 110);
static_assert(sizeof(BlockIQ1S) == 50 && sizeof(BlockIQ1M) == 56);
static_assert(alignof(BlockIQ2XXS) == 1 && alignof(BlockIQ1M) == 1);

}  // namespace tyto
