// The grids of the iq types: the groups of values that a code can stand for. They are part of the
// format.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "tensor/quant_blocks.h"

namespace tyto {

template <size_t kPlaces, size_t kGroup>
using Grid = std::array<std::array<int8_t, kGroup>, kPlaces>;

// What values can be. Of the iq2 and iq3 types these are magnitudes.
inline constexpr std::array<int8_t, 3> kLevelsIQ2 = {8, 25, 43};
inline constexpr std::array<int8_t, 8> kLevelsIQ3XXS = {4, 12, 20, 28, 36, 44, 52, 62};
inline constexpr std::array<int8_t, 8> kLevelsIQ3S = {1, 3, 5, 7, 9, 11, 13, 15};
inline constexpr std::array<int8_t, 3> kLevelsIQ1 = {-1, 0, 1};

extern const Grid<256, 8> kGridIQ2XXS;
extern const Grid<512, 8> kGridIQ2XS;
extern const Grid<1024, 8> kGridIQ2S;
extern const Grid<256, 4> kGridIQ3XXS;
extern const Grid<512, 4> kGridIQ3S;
extern const Grid<2048, 8> kGridIQ1;

// The groups of values of a block whose values lie on a grid, one after the other: what decoding
// and packing share.

// walk_grid calls put(group, signs, scale) for each group in order. Bit i of `signs` belongs to
// value i. A value is, in the iq2 and iq3 types, grid_unit * scale * (negative ? -group : group),
// and in the iq1 types, whose signs are all the same, grid_unit * scale * (8 group + (negative ? -1
// : 1)). Every product is exact.

// The eighth sign of seven that are stored makes the number of negative ones even.
inline unsigned with_eighth_sign(unsigned seven) {
  return seven | (static_cast<unsigned>(std::popcount(seven)) & 1) << 7;
}

inline int odd(unsigned stored) {
  return static_cast<int>(2 * stored + 1);
}

// The i-th of four bits each.
inline unsigned nibble(const uint8_t* bytes, size_t i) {
  return bytes[i / 2] >> (i % 2 * 4) & 15u;
}

inline float grid_unit(const BlockIQ2XXS& block) {
  return to_f32(block.d) * 0.125f;
}

template <typename Put>
void walk_grid(const BlockIQ2XXS& block, const Put& put) {
  for (const auto& group : block.group) {
    const auto bits = std::bit_cast<uint32_t>(group.signs_and_scale);
    for (size_t i = 0; i < 4; ++i)
      put(kGridIQ2XXS[group.grid[i]], with_eighth_sign(bits >> (7 * i) & 127), odd(bits >> 28));
  }
}

inline float grid_unit(const BlockIQ2XS& block) {
  return to_f32(block.d) * 0.125f;
}

template <typename Put>
void walk_grid(const BlockIQ2XS& block, const Put& put) {
  for (size_t i = 0; i < 32; ++i) {
    const unsigned code = std::bit_cast<uint16_t>(block.code[i]);
    put(kGridIQ2XS[code & 511], with_eighth_sign(code >> 9), odd(nibble(block.scales, i / 2)));
  }
}

inline float grid_unit(const BlockIQ2S& block) {
  return to_f32(block.d) * 0.125f;
}

template <typename Put>
void walk_grid(const BlockIQ2S& block, const Put& put) {
  for (size_t i = 0; i < 32; ++i) {
    const unsigned high = block.high[i / 4] >> (i % 4 * 2) & 3u;
    put(kGridIQ2S[block.grid[i] | high << 8], unsigned{block.signs[i]},
        odd(nibble(block.scales, i / 2)));
  }
}

inline float grid_unit(const BlockIQ3XXS& block) {
  return to_f32(block.d) * 0.25f;
}

template <typename Put>
void walk_grid(const BlockIQ3XXS& block, const Put& put) {
  for (size_t i = 0; i < 32; ++i) {
    const auto bits = std::bit_cast<uint32_t>(block.signs_and_scale[i / 4]);
    const unsigned signs = with_eighth_sign(bits >> (i % 4 * 7) & 127);
    put(kGridIQ3XXS[block.grid[2 * i]], signs, odd(bits >> 28));
    put(kGridIQ3XXS[block.grid[2 * i + 1]], signs >> 4, odd(bits >> 28));
  }
}

inline float grid_unit(const BlockIQ3S& block) {
  return to_f32(block.d);
}

template <typename Put>
void walk_grid(const BlockIQ3S& block, const Put& put) {
  for (size_t i = 0; i < 64; ++i) {
    const unsigned ninth = block.high[i / 8] >> i % 8 & 1u;
    put(kGridIQ3S[block.grid[i] | ninth << 8], nibble(block.signs, i),
        odd(nibble(block.scales, i / 8)));
  }
}

inline float grid_unit(const BlockIQ1S& block) {
  return to_f32(block.d) * 0.125f;
}

template <typename Put>
void walk_grid(const BlockIQ1S& block, const Put& put) {
  for (size_t i = 0; i < 32; ++i) {
    const unsigned bits = std::bit_cast<uint16_t>(block.high[i / 4]);
    const unsigned place = block.grid[i] | (bits >> (i % 4 * 3) & 7u) << 8;
    put(kGridIQ1[place], (bits >> 15) * 255u, odd(bits >> 12 & 7u));
  }
}

inline float grid_unit(const BlockIQ1M& block) {
  return to_f32(block.d()) * 0.125f;
}

template <typename Put>
void walk_grid(const BlockIQ1M& block, const Put& put) {
  for (size_t i = 0; i < 32; ++i) {
    const unsigned bits = nibble(block.high, i);
    const unsigned scale = block.word(i / 8) >> (i / 2 % 4 * 3) & 7u;
    put(kGridIQ1[block.grid[i] | (bits & 7) << 8], (bits >> 3) * 255u, odd(scale));
  }
}

}  // namespace tyto
