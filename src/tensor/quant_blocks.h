// The block layouts of GGUF's quantised types, and the loops that code them. For
// dequantize(), quantize(), and devices that rearrange blocks for their kernels.
//
// In every layout d (and m or dmin) are f16 and the codes are small integers, so each product of
// them is exact in f32: decoding rounds at most once, in the final addition, and gives the same
// bits with and without fused multiply-add. quant_blocks.h has the types whose codes stand for
// numbers of a table.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tensor/dtype.h"
#include "tensor/float16.h"

namespace tyto {

static_assert(std::endian::native == std::endian::little, "GGUF blocks are little endian");

constexpr size_t kSimpleValues = 32;
constexpr size_t kSuperValues = 256;

// An f16 as the blocks hold it: bytes, so that a block may lie at any address.
struct Half {
  uint8_t bytes[2];
};

inline float to_f32(Half half) {
  return f16_to_f32(std::bit_cast<uint16_t>(half));
}

// Two codes of four bits share a byte: values i and i + 16 in code[i].
using Nibbles32 = uint8_t[16];

struct BlockQ8_0 {  // d * code
  static constexpr size_t kValues = kSimpleValues;
  Half d;
  int8_t code[32];
};

struct BlockQ4_0 {  // d * (code - 8)
  static constexpr size_t kValues = kSimpleValues;
  Half d;
  Nibbles32 code;
};

struct BlockQ4_1 {  // d * code + m
  static constexpr size_t kValues = kSimpleValues;
  Half d;
  Half m;
  Nibbles32 code;
};

struct BlockQ5_0 {  // d * (code - 16); bit i of `high` is the fifth bit of code i
  static constexpr size_t kValues = kSimpleValues;
  Half d;
  std::array<uint8_t, 4> high;
  Nibbles32 code;
};

struct BlockQ5_1 {  // d * code + m
  static constexpr size_t kValues = kSimpleValues;
  Half d;
  Half m;
  std::array<uint8_t, 4> high;
  Nibbles32 code;
};

// Sixteen sub-blocks of 16 values: d * scale * code - dmin * min, the scale in the low four bits of
// scales[sub-block], the min in the high ones. Each half of 128 values has 32 bytes of bit pairs:
// quarter k of the half is bits 2k, 2k + 1.
struct BlockQ2K {
  static constexpr size_t kValues = kSuperValues;
  uint8_t scales[16];
  uint8_t code[64];
  Half d;
  Half dmin;
};

// Sixteen scales of six bits in twelve bytes, stored 32 too large: byte i < 8 holds the low nibbles
// of scales i and i + 8; the two high bits of scales i, i + 4, i + 8 and i + 12 are bits 0-1, 2-3,
// 4-5 and 6-7 of byte 8 + i.
using PackedSignedScales = uint8_t[12];

// Sixteen sub-blocks of 16 values: d * scale * (code - 4). The codes' low bits lie as q2_k's; bit s
// of high[i] is the third bit of value 32 s + i.
struct BlockQ3K {
  static constexpr size_t kValues = kSuperValues;
  uint8_t high[32];
  uint8_t code[64];
  PackedSignedScales scales;
  Half d;
};

// Eight scales and eight mins of six bits in twelve bytes: bytes 0-3 hold scales 0-3 and bytes 4-7
// mins 0-3 in their low six bits; bytes 8-11 hold the low nibbles of scale and min 4-7, whose two
// high bits lie in the top bits of bytes 0-3 and 4-7.
using PackedScales = uint8_t[12];

// Eight sub-blocks of 32 values: d * scale * code - dmin * min. Sub-blocks 2p and 2p + 1 are the
// low and the high nibbles of the 32 bytes at 32 p.
struct BlockQ4K {
  static constexpr size_t kValues = kSuperValues;
  Half d;
  Half dmin;
  PackedScales scales;
  uint8_t code[128];
};

struct BlockQ5K {  // as q4_k; bit s of high[i] is the fifth bit of value i in sub-block s
  static constexpr size_t kValues = kSuperValues;
  Half d;
  Half dmin;
  PackedScales scales;
  uint8_t high[32];
  uint8_t code[128];
};

// Sixteen sub-blocks of 16 values: d * scale * (code - 32). Each half of 128 values has 64 bytes of
// low nibbles (low halves of the bytes first) and 32 bytes of high bit pairs: quarter k of the half
// is nibble k / 2 of bytes 32 (k % 2) on, and bits 2k, 2k + 1 of the pairs.
struct BlockQ6K {
  static constexpr size_t kValues = kSuperValues;
  uint8_t low[128];
  uint8_t high[64];
  int8_t scale[16];
  Half d;
};

static_assert(sizeof(BlockQ8_0) == 34 && sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20);
static_assert(sizeof(BlockQ5_0) == 22 && sizeof(BlockQ5_1) == 24);
static_assert(alignof(BlockQ8_0) == 1 && alignof(BlockQ6K) == 1);
static_assert(sizeof(BlockQ2K) == 84 && sizeof(BlockQ3K) == 110);
static_assert(sizeof(BlockQ4K) == 144 && sizeof(BlockQ5K) == 176 && sizeof(BlockQ6K) == 210);

// What an encoder reads for a value: NaN as zero, and magnitudes beyond any block's reach cut off,
// so that no arithmetic on it overflows.
inline float encodable(float value) {
  constexpr float kLimit = 0x1p40f;
  return value != value ? 0.0f : std::min(kLimit, std::max(-kLimit, value));
}

constexpr float kLargestHalf = 65504;

// An infinite scale would decode as NaN; the largest finite one saturates.
inline Half encode_scale(float value) {
  return std::bit_cast<Half>(f32_to_f16(std::min(kLargestHalf, std::max(-kLargestHalf, value))));
}

// A scale of zero stands for values that are all zero.
inline float inverse(float scale) {
  return scale != 0.0f ? 1.0f / scale : 0.0f;
}

// Encodes block by block with `encode(values, block)`, which fills in the block.
template <typename Block, typename Encode>
void encode_each(const float* in, std::byte* out, size_t blocks, const Encode& encode) {
  for (size_t i = 0; i < blocks; ++i) {
    float values[Block::kValues];
    for (size_t k = 0; k < Block::kValues; ++k) values[k] = encodable(in[i * Block::kValues + k]);
    Block block = {};
    encode(values, block);
    std::memcpy(out + i * sizeof block, &block, sizeof block);
  }
}

// `blocks` whole blocks, the type being one of the quantised ones of the function's family.
// `importance` has a number for every value, or is null.
void decode_blocks(DType type, const std::byte* in, float* out, size_t blocks);
void decode_iq_blocks(DType type, const std::byte* in, float* out, size_t blocks);
void encode_simple_blocks(DType type, const float* in, std::byte* out, size_t blocks);
void encode_simple_row(DType type, const float* in, const float* importance, std::byte* out,
                       size_t blocks);
void encode_k_blocks(DType type, const float* in, const float* importance, std::byte* out,
                     size_t blocks);

// The block layouts whose codes are places in a table: of sixteen numbers (iq4, mxfp4), or of whole
// groups of four or eight values that lie on a grid (iq1, iq2, iq3; quant_grids.h). All of them but
// mxfp4 have f16 factors, and every product is exact in f32.

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
  } group[8];                                // 32 values each
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
