// Rows of blocks into panels: a row's codes become eight words of four values in a register,
// sixteen such registers are turned, and what comes out are whole cache lines, which go around the
// caches to memory that is next read when a token needs it.

#include <immintrin.h>

#include <cstring>
#include <type_traits>

#include "device/cpu/isa/simd.h"
#include "device/cpu/packed_weights.h"
#include "tensor/quant_blocks.h"

namespace tyto::cpu::TYTO_ISA {
namespace {

constexpr size_t kLine = 64;

// Sixteen rows of one panel at one unit. A row that is not there is a block of zeros that does not
// move.
template <typename Block>
struct Rows {
  const Block* row[kPanelRows];
  size_t step[kPanelRows];

  [[gnu::always_inline]] const Block& at(size_t r, size_t unit) const {
    return row[r][unit * step[r]];
  }
};

TYTO_INLINE __m128i load16(const uint8_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}

TYTO_INLINE __m256i load32(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

TYTO_INLINE void stream(uint8_t* out, __m256i value) {
  _mm256_stream_si256(reinterpret_cast<__m256i*>(out), value);
}

// Eight rows of eight words: word w of every row into w[w].
TYTO_INLINE void transpose_words(__m256i (&w)[8]) {
  __m256i pairs[8], fours[8];
  for (size_t i = 0; i < 8; i += 2) {
    pairs[i] = _mm256_unpacklo_epi32(w[i], w[i + 1]);
    pairs[i + 1] = _mm256_unpackhi_epi32(w[i], w[i + 1]);
  }
  for (size_t i = 0; i < 8; i += 4)
    for (size_t half = 0; half < 2; ++half) {
      fours[i + 2 * half] = _mm256_unpacklo_epi64(pairs[i + half], pairs[i + 2 + half]);
      fours[i + 2 * half + 1] = _mm256_unpackhi_epi64(pairs[i + half], pairs[i + 2 + half]);
    }
  for (size_t i = 0; i < 4; ++i) {
    w[i] = _mm256_permute2x128_si256(fours[i], fours[i + 4], 0x20);
    w[i + 4] = _mm256_permute2x128_si256(fours[i], fours[i + 4], 0x31);
  }
}

// `row(r)` is eight words of row r; word w of rows `first` to first + 7 into w[w].
template <typename Row>
TYTO_INLINE void turn_eight_rows(size_t first, const Row& row, __m256i (&w)[8]) {
  for (size_t r = 0; r < 8; ++r) w[r] = row(first + r);
  transpose_words(w);
}

// Words 0 to 3 of all rows become the four lines from `low` on, words 4 to 7 those from `high` on.
// Either may be null. One half of the rows waits in registers or on the stack, so that a line is
// written at once: half a line would be read first.
template <typename Row>
TYTO_INLINE void put_lines(const Row& row, uint8_t* low, uint8_t* high) {
  __m256i upper[8], lower[8];
  turn_eight_rows(0, row, upper);
  turn_eight_rows(8, row, lower);
  for (size_t half = 0; half < 2; ++half) {
    uint8_t* out = half == 0 ? low : high;
    if (out == nullptr) continue;
    for (size_t g = 0; g < 4; ++g) {
      stream(out + kLine * g, upper[4 * half + g]);
      stream(out + kLine * g + 32, lower[4 * half + g]);
    }
  }
}

// 32 bytes whose low nibbles are one block and whose high nibbles are another: the first in words 0
// to 3, the second in words 4 to 7, each with values i and i + 16 in a byte.
TYTO_INLINE __m256i two_blocks_of_nibbles(const uint8_t* in) {
  const __m256i both = load32(in), mask = _mm256_set1_epi8(15);
  const __m256i low = _mm256_and_si256(both, mask);
  const __m256i high = _mm256_and_si256(_mm256_srli_epi16(both, 4), mask);
  const __m256i first = _mm256_permute2x128_si256(low, high, 0x20);
  const __m256i second = _mm256_permute2x128_si256(low, high, 0x31);
  return _mm256_or_si256(first, _mm256_slli_epi16(second, 4));
}

template <typename Block>
TYTO_INLINE void put_halves(const Rows<Block>& rows, size_t unit, Half Block::* half,
                            uint8_t* out) {
  for (size_t r = 0; r < kPanelRows; ++r)
    std::memcpy(out + 2 * r, &(rows.at(r, unit).*half), sizeof(Half));
}

// Sixteen bytes of sixteen rows: byte i of every row goes to out + 16 i.
TYTO_INLINE void put_turned_bytes(__m128i (&rows)[16], uint8_t* out) {
  // Each round puts rows i and i + 8 side by side; after four of them rows have become columns.
  for (size_t round = 0; round < 4; ++round) {
    __m128i next[16];
    for (size_t i = 0; i < 8; ++i) {
      next[2 * i] = _mm_unpacklo_epi8(rows[i], rows[i + 8]);
      next[2 * i + 1] = _mm_unpackhi_epi8(rows[i], rows[i + 8]);
    }
    for (size_t i = 0; i < 16; ++i) rows[i] = next[i];
  }
  for (size_t i = 0; i < 16; ++i)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 16 * i), rows[i]);
}

// Scales and minima of six bits, scale and minimum of a block side by side.
TYTO_INLINE __m128i k_scales(const PackedScales& packed) {
  uint32_t low, mins, tops;
  std::memcpy(&low, packed, 4);
  std::memcpy(&mins, packed + 4, 4);
  std::memcpy(&tops, packed + 8, 4);
  constexpr uint32_t kSix = 0x3f3f3f3f, kNibbles = 0x0f0f0f0f, kTop = 0x30303030;
  const uint64_t scales = (uint64_t{(tops & kNibbles) | (low >> 2 & kTop)} << 32) | (low & kSix);
  const uint64_t minima =
      (uint64_t{(tops >> 4 & kNibbles) | (mins >> 2 & kTop)} << 32) | (mins & kSix);
  return _mm_unpacklo_epi8(_mm_cvtsi64_si128(static_cast<int64_t>(scales)),
                           _mm_cvtsi64_si128(static_cast<int64_t>(minima)));
}

template <typename Block>
TYTO_INLINE void put_k_scales(const Rows<Block>& rows, size_t unit, uint8_t* out) {
  put_halves(rows, unit, &Block::d, out);
  put_halves(rows, unit, &Block::dmin, out + 32);
  __m128i scales[kPanelRows];
  for (size_t r = 0; r < kPanelRows; ++r) scales[r] = k_scales(rows.at(r, unit).scales);
  put_turned_bytes(scales, out + 64);
}

// In every byte of a and b: the bits of b under `mask` change places with those of a that are
// `shift` higher.
template <int shift>
TYTO_INLINE void swap_bits(__m256i& a, __m256i& b, uint32_t mask) {
  const __m256i difference = _mm256_and_si256(_mm256_xor_si256(_mm256_srli_epi32(a, shift), b),
                                              _mm256_set1_epi32(static_cast<int>(mask)));
  b = _mm256_xor_si256(b, difference);
  a = _mm256_xor_si256(a, _mm256_slli_epi32(difference, shift));
}

// Bit s of every byte of w[g] becomes bit g of that of w[s].
TYTO_INLINE void transpose_bits(__m256i (&w)[8]) {
  for (size_t i = 0; i < 4; ++i) swap_bits<4>(w[i], w[i + 4], 0x0f0f0f0f);
  for (size_t i : {0, 1, 4, 5}) swap_bits<2>(w[i], w[i + 2], 0x33333333);
  for (size_t i = 0; i < 8; i += 2) swap_bits<1>(w[i], w[i + 1], 0x55555555);
}

// The same of pairs of bits, four by four: pair t of w[g] becomes pair g of w[t].
TYTO_INLINE void transpose_bit_pairs(__m256i* w) {
  for (size_t i = 0; i < 2; ++i) swap_bits<4>(w[i], w[i + 2], 0x0f0f0f0f);
  for (size_t i = 0; i < 4; i += 2) swap_bits<2>(w[i], w[i + 1], 0x33333333);
}

// Bit 4 g + j of every word becomes bit 8 j + g.
TYTO_INLINE __m256i spread_fifth_bits(__m256i bits) {
  __m256i result = _mm256_setzero_si256();
  for (int j = 0; j < 4; ++j) {
    __m256i t = _mm256_and_si256(_mm256_srli_epi32(bits, j), _mm256_set1_epi32(0x11111111));
    t = _mm256_and_si256(_mm256_or_si256(t, _mm256_srli_epi32(t, 3)),
                         _mm256_set1_epi32(0x03030303));
    t = _mm256_and_si256(_mm256_or_si256(t, _mm256_srli_epi32(t, 6)),
                         _mm256_set1_epi32(0x000f000f));
    t = _mm256_and_si256(_mm256_or_si256(t, _mm256_srli_epi32(t, 12)), _mm256_set1_epi32(0xff));
    result = _mm256_or_si256(result, _mm256_slli_epi32(t, 8 * j));
  }
  return result;
}

// What each type does with units `unit` to unit + count - 1 of sixteen rows; count is 1, or 2 where
// kTogether is.
struct To {
  uint8_t* scales;  // begin with the first unit
  uint8_t* codes;
};

struct PackQ8_0 {
  using Block = BlockQ8_0;
  static constexpr size_t kTogether = 1;
  [[gnu::always_inline]] static void put(const Rows<Block>& rows, size_t unit, size_t,
                                         const To& to) {
    put_halves(rows, unit, &Block::d, to.scales);
    put_lines(
        [&](size_t r) __attribute__((always_inline)) {
          const uint8_t* codes = reinterpret_cast<const uint8_t*>(rows.at(r, unit).code);
          return _mm256_xor_si256(load32(codes), _mm256_set1_epi8(-128));
        },
        to.codes, to.codes + 4 * kLine);
  }
};

// Blocks of 32 values whose nibbles lie as the panels want them: two blocks fill a register.
template <typename BlockType>
struct PackNibbles {
  using Block = BlockType;
  static constexpr size_t kTogether = 2;
  static constexpr bool kHasMinimum = requires(Block block) { block.m; };
  static constexpr bool kHasFifthBit = requires(Block block) { block.high; };
  static constexpr bool kHasExponent = requires(Block block) { block.exponent; };
  static constexpr size_t kScaleBytes = kHasMinimum ? 64 : 32;
  static constexpr size_t kCodeBytes = kHasFifthBit ? 320 : 256;

  [[gnu::always_inline]] static void put(const Rows<Block>& rows, size_t unit, size_t count,
                                         const To& to) {
    const size_t second = unit + count - 1;
    put_lines(
        [&](size_t r) __attribute__((always_inline)) {
          return _mm256_set_m128i(load16(rows.at(r, second).code), load16(rows.at(r, unit).code));
        },
        to.codes, count == 2 ? to.codes + kCodeBytes : nullptr);
    for (size_t i = 0; i < count; ++i) {
      if constexpr (kHasExponent)
        put_powers(rows, unit + i, to.scales + i * kScaleBytes);
      else
        put_halves(rows, unit + i, &Block::d, to.scales + i * kScaleBytes);
      if constexpr (kHasMinimum)
        put_halves(rows, unit + i, &Block::m, to.scales + i * kScaleBytes + 32);
      if constexpr (kHasFifthBit) put_fifth_bits(rows, unit + i, to.codes + i * kCodeBytes + 256);
    }
  }

 private:
  // bf16 holds every one of them.
  [[gnu::always_inline]] static void put_powers(const Rows<Block>& rows, size_t unit,
                                                uint8_t* out) {
    for (size_t r = 0; r < kPanelRows; ++r) {
      const uint32_t power = std::bit_cast<uint32_t>(half_power(rows.at(r, unit).exponent)) >> 16;
      const auto there = static_cast<uint16_t>(rows.step[r] == 0 ? 0 : power);
      std::memcpy(out + 2 * r, &there, sizeof there);
    }
  }

  [[gnu::always_inline]] static void put_fifth_bits(const Rows<Block>& rows, size_t unit,
                                                    uint8_t* out) {
    for (size_t half = 0; half < 2; ++half) {
      alignas(32) uint32_t bits[8];
      for (size_t r = 0; r < 8; ++r) std::memcpy(bits + r, &rows.at(8 * half + r, unit).high, 4);
      stream(out + 32 * half,
             spread_fifth_bits(_mm256_load_si256(reinterpret_cast<const __m256i*>(bits))));
    }
  }
};

// The 32 bytes of bits of 256 values, bit s of byte i being that of value 32 s + i, as a line of
// each of the eight blocks.
template <typename Block, size_t kCodeBytes>
TYTO_INLINE void put_bits(const Rows<Block>& rows, size_t unit, uint8_t* out) {
  __m256i bits[2][8];
  for (size_t half = 0; half < 2; ++half) {
    turn_eight_rows(
        8 * half,
        [&](size_t r) __attribute__((always_inline)) { return load32(rows.at(r, unit).high); },
        bits[half]);
    transpose_bits(bits[half]);
  }
  for (size_t s = 0; s < 8; ++s)
    for (size_t half = 0; half < 2; ++half) stream(out + kCodeBytes * s + 32 * half, bits[half][s]);
}

// `pairs(r)` are 32 bytes of bit pairs of four blocks, pair t of byte i being that of value 32 t +
// i, as two lines of each block: words 0 to 3 are the first line of each, words 4 to 7 the second.
template <size_t kCodeBytes, typename Pairs>
TYTO_INLINE void put_bit_pairs(const Pairs& pairs, uint8_t* out) {
  __m256i turned[2][8];
  for (size_t eight = 0; eight < 2; ++eight) {
    turn_eight_rows(8 * eight, pairs, turned[eight]);
    transpose_bit_pairs(turned[eight]);
    transpose_bit_pairs(turned[eight] + 4);
  }
  for (size_t block = 0; block < 4; ++block)
    for (size_t line = 0; line < 2; ++line)
      for (size_t eight = 0; eight < 2; ++eight)
        stream(out + kCodeBytes * block + kLine * line + 32 * eight,
               turned[eight][4 * line + block]);
}

template <typename Block, size_t kCodeBytes>
TYTO_INLINE void put_k_nibbles(const Rows<Block>& rows, size_t unit, uint8_t* codes) {
  for (size_t pair = 0; pair < 4; ++pair) {
    uint8_t* out = codes + 2 * pair * kCodeBytes;
    put_lines(
        [&](size_t r) __attribute__((always_inline)) {
          return two_blocks_of_nibbles(rows.at(r, unit).code + 32 * pair);
        },
        out, out + kCodeBytes);
  }
}

struct PackQ4K {
  using Block = BlockQ4K;
  static constexpr size_t kTogether = 1;
  [[gnu::always_inline]] static void put(const Rows<Block>& rows, size_t unit, size_t,
                                         const To& to) {
    put_k_scales(rows, unit, to.scales);
    put_k_nibbles<Block, 256>(rows, unit, to.codes);
  }
};

struct PackQ5K {
  using Block = BlockQ5K;
  static constexpr size_t kTogether = 1;
  [[gnu::always_inline]] static void put(const Rows<Block>& rows, size_t unit, size_t,
                                         const To& to) {
    put_k_scales(rows, unit, to.scales);
    put_k_nibbles<Block, 320>(rows, unit, to.codes);
    put_bits<Block, 320>(rows, unit, to.codes + 256);
  }
};

struct PackQ6K {
  using Block = BlockQ6K;
  static constexpr size_t kTogether = 1;
  [[gnu::always_inline]] static void put(const Rows<Block>& rows, size_t unit, size_t,
                                         const To& to) {
    put_halves(rows, unit, &Block::d, to.scales);
    __m128i scales[kPanelRows];
    for (size_t r = 0; r < kPanelRows; ++r)
      scales[r] = load16(reinterpret_cast<const uint8_t*>(rows.at(r, unit).scale));
    put_turned_bytes(scales, to.scales + 32);
    for (size_t i = 0; i < 4; ++i) {  // the bytes of quarters i % 2 and i % 2 + 2 of half i / 2
      uint8_t* out = to.codes + 384 * (4 * (i / 2) + i % 2);
      put_lines(
          [&](size_t r) __attribute__((always_inline)) {
            return two_blocks_of_nibbles(rows.at(r, unit).low + 32 * i);
          },
          out, out + 2 * 384);
    }
    for (size_t half = 0; half < 2; ++half)
      put_bit_pairs<384>(
          [&](size_t r)
              __attribute__((always_inline)) { return load32(rows.at(r, unit).high + 32 * half); },
          to.codes + 4 * 384 * half + 256);
  }
};

template <typename Block, size_t kCodeBytes>
TYTO_INLINE void put_k_pairs(const Rows<Block>& rows, size_t unit, uint8_t* codes) {
  for (size_t half = 0; half < 2; ++half)
    put_bit_pairs<kCodeBytes>(
        [&](size_t r)
            __attribute__((always_inline)) { return load32(rows.at(r, unit).code + 32 * half); },
        codes + 4 * kCodeBytes * half);
}

struct PackQ2K {
  using Block = BlockQ2K;
  static constexpr size_t kTogether = 1;
  [[gnu::always_inline]] static void put(const Rows<Block>& rows, size_t unit, size_t,
                                         const To& to) {
    put_halves(rows, unit, &Block::d, to.scales);
    put_halves(rows, unit, &Block::dmin, to.scales + 32);
    __m128i scales[kPanelRows];
    for (size_t r = 0; r < kPanelRows; ++r) scales[r] = load16(rows.at(r, unit).scales);
    put_turned_bytes(scales, to.scales + 64);
    put_k_pairs<Block, 128>(rows, unit, to.codes);
  }
};

// Scales of six bits with their sign, one in a byte.
TYTO_INLINE __m128i signed_scales(const PackedSignedScales& packed) {
  uint64_t low;
  uint32_t tops;
  std::memcpy(&low, packed, 8);
  std::memcpy(&tops, packed + 8, 4);
  constexpr uint64_t kNibbles = 0x0f0f0f0f0f0f0f0f;
  constexpr uint32_t kTop = 0x30303030;
  const uint64_t first = uint64_t{tops << 2 & kTop} << 32 | (tops << 4 & kTop);
  const uint64_t second = uint64_t{tops >> 2 & kTop} << 32 | (tops & kTop);
  const __m128i biased = _mm_set_epi64x(static_cast<int64_t>((low >> 4 & kNibbles) | second),
                                        static_cast<int64_t>((low & kNibbles) | first));
  return _mm_sub_epi8(biased, _mm_set1_epi8(32));
}

struct PackQ3K {
  using Block = BlockQ3K;
  static constexpr size_t kTogether = 1;
  [[gnu::always_inline]] static void put(const Rows<Block>& rows, size_t unit, size_t,
                                         const To& to) {
    put_halves(rows, unit, &Block::d, to.scales);
    __m128i scales[kPanelRows];
    for (size_t r = 0; r < kPanelRows; ++r) scales[r] = signed_scales(rows.at(r, unit).scales);
    put_turned_bytes(scales, to.scales + 32);
    put_k_pairs<Block, 192>(rows, unit, to.codes);
    put_bits<Block, 192>(rows, unit, to.codes + 128);
  }
};

struct PackIQ4XS {
  using Block = BlockIQ4XS;
  static constexpr size_t kTogether = 1;
  [[gnu::always_inline]] static void put(const Rows<Block>& rows, size_t unit, size_t,
                                         const To& to) {
    put_halves(rows, unit, &Block::d, to.scales);
    for (size_t r = 0; r < kPanelRows; ++r)
      for (size_t s = 0; s < 8; ++s)
        to.scales[32 + kPanelRows * s + r] = static_cast<uint8_t>(rows.at(r, unit).scale(s));
    for (size_t pair = 0; pair < 4; ++pair) {
      uint8_t* out = to.codes + 2 * pair * 256;
      put_lines(
          [&](size_t r)
              __attribute__((always_inline)) { return load32(rows.at(r, unit).code[2 * pair]); },
          out, out + 256);
    }
  }
};

// What stands in for rows that are not there: its codes are stored as zeros.
template <typename Block>
TYTO_INLINE Block absent_block() {
  Block block = {};
  if constexpr (std::is_same_v<Block, BlockQ8_0>)
    for (int8_t& code : block.code) code = -128;
  if constexpr (std::is_same_v<Block,
                               BlockQ3K>)  // scales are stored 32 too large
    for (size_t i = 8; i < sizeof block.scales; ++i) block.scales[i] = 0xaa;
  if constexpr (std::is_same_v<Block, BlockIQ4XS>) block.high = {0xaa, 0xaa};
  return block;
}

template <typename Pack>
void pack_panel(const PanelRows& in, uint8_t* out) {
  using Block = typename Pack::Block;
  const Block absent = absent_block<Block>();
  Rows<Block> rows;
  for (size_t r = 0; r < kPanelRows; ++r) {
    const bool is_there = r < in.rows;
    rows.row[r] = is_there ? reinterpret_cast<const Block*>(in.first + r * in.row_stride) : &absent;
    rows.step[r] = is_there ? 1 : 0;
  }
  const PackedLayout layout = packed_layout(in.type);
  uint8_t* codes = out + layout.scales_size(in.k);
  const size_t unit_codes = layout.scale_blocks * layout.code_bytes;
  const size_t units = in.k / Block::kValues;
  size_t u = 0;
  for (; u + Pack::kTogether <= units; u += Pack::kTogether)
    Pack::put(rows, u, Pack::kTogether, {out + u * layout.scale_bytes, codes + u * unit_codes});
  for (; u < units; ++u)
    Pack::put(rows, u, 1, {out + u * layout.scale_bytes, codes + u * unit_codes});
  _mm_sfence();  // a thread that is told that the panel is done finds it in memory
}

}  // namespace

PackPanel panel_packer(DType type) {
  switch (type) {
    case DType::q8_0:
      return pack_panel<PackQ8_0>;
    case DType::q4_0:
      return pack_panel<PackNibbles<BlockQ4_0>>;
    case DType::q4_1:
      return pack_panel<PackNibbles<BlockQ4_1>>;
    case DType::q5_0:
      return pack_panel<PackNibbles<BlockQ5_0>>;
    case DType::q5_1:
      return pack_panel<PackNibbles<BlockQ5_1>>;
    case DType::iq4_nl:
      return pack_panel<PackNibbles<BlockIQ4NL>>;
    case DType::mxfp4:
      return pack_panel<PackNibbles<BlockMXFP4>>;
    case DType::iq4_xs:
      return pack_panel<PackIQ4XS>;
    case DType::q2_k:
      return pack_panel<PackQ2K>;
    case DType::q3_k:
      return pack_panel<PackQ3K>;
    case DType::q4_k:
      return pack_panel<PackQ4K>;
    case DType::q5_k:
      return pack_panel<PackQ5K>;
    case DType::q6_k:
      return pack_panel<PackQ6K>;
    // pack_grid_panel() packs these.
    case DType::iq3_xxs:
    case DType::iq3_s:
    case DType::iq2_xxs:
    case DType::iq2_xs:
    case DType::iq2_s:
    case DType::iq1_s:
    case DType::iq1_m:
    // These are packed as floats or not at all.
    case DType::f32:
    case DType::f16:
    case DType::bf16:
    case DType::i32:
    case DType::i8:
      break;
  }
  return nullptr;
}

}  // namespace tyto::cpu::TYTO_ISA
