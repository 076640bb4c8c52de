// Matrices repacked for the CPU's kernels, once, when they are bound.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/thread_pool.h"
#include "tensor/dtype.h"

namespace tyto::cpu {

// A panel's rows, as many as there are, as the file has them.
struct PanelRows {
  DType type;
  const std::byte* first;
  size_t row_stride;  // bytes
  size_t rows;
  size_t k;
};

// Writes every byte of one panel's scales and codes; those of rows that are not there are zero.
// What lies between the scales and the next cache line is left as it is. `out` begins a cache line.
using PackPanel = void (*)(const PanelRows& in, uint8_t* out);

// For block-quantised types; null for others. The loops need AVX2, as every set with packed kernels
// does.
namespace avx2 {
PackPanel panel_packer(DType type);
}

// How matrices are laid out for the kernels, and activations beside them.
//
// Block-quantised ones:
//
// A matrix is cut into panels of sixteen rows (the last one padded with zeros). A panel holds all
// its scales, then all its codes, block of 32 values after block, so that decoding a token reads
// memory in one direction. Codes are unsigned, four consecutive values of a row side by side (what
// a dot-product instruction takes), then the next row's four:
//
//   2 bits   [2][16 rows][4 values]: bits 2 (g % 4) on of half g / 4
//   3 bits   the 2 bits, then [16 rows][4 values]: bit g is the third bit of group g
//   8 bits   [8 groups][16 rows][4 values]; a signed code c is stored as c + 128
//   4 bits   [4 groups][16 rows][4 values], the low nibble group g, the high one group g + 4
//   5 bits   the 4 bits, then [16 rows][4 values]: bit g is the fifth bit of group g
//   6 bits   the 4 bits, then [2][16 rows][4 values]: bits 2 (g % 4) on of half g / 4
//
// Types whose codes are places in a table keep them: 4 bits, which kernels look up. Of those on a
// grid (pack_grid_panel) the grid's places are gone, and each value has 4 bits of its own.
//
// Scales, each [16 rows]: one f16 (and one f16 minimum) per block, or per 256 values the f16
// factors, then per block 8-bit multipliers as the k-quants have them. mxfp4's powers of two are
// bf16, which holds all of them; a grid's factors are f32.
//
// Floats: panels of 32 rows (what a thread takes at a time), two values of k after two, so that one
// token reads memory in one direction and still has enough independent sums. An odd k ends in
// zeros.
//
//   bf16       [32 rows][2 values]: 32 bits are an operand of vdpbf16ps, or two f32 with a shift
//              and a mask
//   f16, f32   [2 values][32 rows]: what widening a vector takes

constexpr size_t kPanelRows = 16;
constexpr size_t kFloatPanelRows = 32;
constexpr size_t kBlockValues = 32;
constexpr size_t kGroups = 8;  // groups of four values in a block

constexpr bool is_float(DType type) {
  return type == DType::f32 || type == DType::f16 || type == DType::bf16;
}

struct PackedLayout {
  size_t code_bytes;    // one block's of a panel
  size_t scale_bytes;   // one unit's of a panel
  size_t scale_blocks;  // blocks in a unit
  size_t block_values = kBlockValues;
  size_t panel_rows = kPanelRows;

  size_t scales_size(size_t k) const {  // to a multiple of a cache line, so that codes begin one
    const size_t bytes = k / (scale_blocks * block_values) * scale_bytes;
    return (bytes + 63) / 64 * 64;
  }
  size_t panel_size(size_t k) const {
    return scales_size(k) + (k + block_values - 1) / block_values * code_bytes;
  }
};

// code_bytes is 0 for types that are not packed.
constexpr PackedLayout packed_layout(DType type) {
  switch (type) {
    case DType::q8_0:
      return {512, 32, 1};
    case DType::q4_0:
      return {256, 32, 1};
    case DType::q4_1:
      return {256, 64, 1};
    case DType::q5_0:
      return {320, 32, 1};
    case DType::q5_1:
      return {320, 64, 1};
    case DType::iq4_nl:
    case DType::mxfp4:
      return {256, 32, 1};
    case DType::iq4_xs:
      return {256, 32 + 8 * 16, 8};  // d; the scale of each block
    case DType::iq3_xxs:
    case DType::iq3_s:
    case DType::iq2_xxs:
    case DType::iq2_xs:
    case DType::iq2_s:
    case DType::iq1_s:
    case DType::iq1_m:
      return {256, 64 + 8 * 32, 8};  // d as f32; the scales of each block's halves
    case DType::q2_k:
      return {128, 64 + 8 * 32, 8};  // d, dmin; scale and min of each half in a byte
    case DType::q3_k:
      return {192, 32 + 8 * 32, 8};  // d; the scales of each block's halves
    case DType::q4_k:
      return {256, 64 + 8 * 32, 8};  // d, dmin; scale and min of each block
    case DType::q5_k:
      return {320, 64 + 8 * 32, 8};
    case DType::q6_k:
      return {384, 32 + 8 * 32, 8};  // d; the scales of each block's halves
    case DType::bf16:
    case DType::f16:
      return {2 * 2 * kFloatPanelRows, 0, 1, 2, kFloatPanelRows};
    case DType::f32:
      return {2 * 4 * kFloatPanelRows, 0, 1, 2, kFloatPanelRows};
    case DType::i32:
    case DType::i8:
      break;
  }
  return {0, 0, 1};
}

struct PackedMatrix {
  DType type = DType::q8_0;
  size_t rows = 0;
  size_t k = 0;
  const uint8_t* panels = nullptr;  // [panel_count()], panel_size apart

  size_t panel_count() const {
    const size_t panel_rows = packed_layout(type).panel_rows;
    return (rows + panel_rows - 1) / panel_rows;
  }
  const uint8_t* panel(size_t index) const {
    return panels + index * packed_layout(type).panel_size(k);
  }
};

// Activations in eight bits with one scale per token and block. Tokens come in tiles (token_tile
// below), one after the other; inside a tile of T tokens each plane is [blocks][...][T].
struct BlockActivations {
  int8_t* codes;        // [block][8 groups][T][4]
  int16_t* wide_codes;  // [block][8 groups][2][T][2]: codes 0 and 2, then 1 and 3 of each four
  float* scales;        // [block][T]
  // [block][T]: minus the sum of the codes; for sets without a dot-product instruction two 16-bit
  // sums, of codes 0 and 1 and of codes 2 and 3 of each four
  int32_t* negated_sum;
  int32_t* negated_half_sums;  // [block][2][T]: the same of each half
  float* scaled_sum;           // [block][T]: scale times the sum of the codes
};

struct TokenTile {
  size_t first = 0;
  size_t count = 0;
};

constexpr size_t token_tiles(size_t tokens, size_t most) {
  return (tokens + most - 1) / most;
}

// Tiles as even as they can be: 13 tokens by six are 5, 4, 4.
constexpr TokenTile token_tile(size_t tokens, size_t most, size_t index) {
  const size_t tiles = token_tiles(tokens, most);
  const size_t count = tokens / tiles, larger = tokens % tiles;
  return {index * count + (index < larger ? index : larger), count + (index < larger ? 1 : 0)};
}

bool can_pack(DType type);

// Owns its memory (huge pages where the system gives them).
struct PackedWeights {
  PackedMatrix matrix;
  size_t bytes = 0;
  std::shared_ptr<void> memory;
};

// The values of `view`, or their codes and scales, unchanged, in another order; padded rows decode
// to zero.
PackedWeights pack_weights(const TensorView& view, ThreadPool& pool);

// Float matrices in the order that the CPU's kernels read them (packed_weights.h).

// A PackPanel for f32, f16 and bf16. What the matrix does not have, rows or the odd last value, is
// left as it is: zero.
void pack_float_panel(const PanelRows& in, uint8_t* out);

// Panels of the types whose values lie on a grid (iq1, iq2, iq3). A grid's place is looked up once,
// when the matrix is packed: the values of a type have at most sixteen levels, signs included, so
// that four bits are enough for each of them, and the kernels of four-bit codes multiply by them.
// Memory grows to 4.6 bits a value.

constexpr bool is_on_grid(DType type) {
  return type == DType::iq3_xxs || type == DType::iq3_s || type == DType::iq2_xxs ||
         type == DType::iq2_xs || type == DType::iq2_s || type == DType::iq1_s ||
         type == DType::iq1_m;
}

// What a type's four-bit codes stand for: sixteen numbers.
const int8_t* grid_levels(DType type);

// A PackPanel for them.
void pack_grid_panel(const PanelRows& in, uint8_t* out);

}  // namespace tyto::cpu
