#include "device/cpu/packed_weights.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "device/cpu/weight_cache.h"
#include "tensor/quant_grids.h"

namespace tyto::cpu {
namespace {

PackPanel panel_packer(DType type) {
  if (is_float(type)) return pack_float_panel;
  return is_on_grid(type) ? pack_grid_panel : avx2::panel_packer(type);
}

}  // namespace

bool can_pack(DType type) {
  return panel_packer(type) != nullptr;
}

PackedWeights pack_weights(const TensorView& view, ThreadPool& pool) {
  TYTO_ASSERT(can_pack(view.dtype) && view.rows > 0 && view.cols > 0);
  PackedWeights result;
  result.matrix = {view.dtype, view.rows, view.cols, nullptr};
  const PackedLayout layout = packed_layout(view.dtype);
  const size_t panel_size = layout.panel_size(view.cols), panel_rows = layout.panel_rows;
  result.bytes = result.matrix.panel_count() * panel_size;
  result.memory = zeroed_huge_pages(result.bytes);
  uint8_t* panels = static_cast<uint8_t*>(result.memory.get());
  result.matrix.panels = panels;
  const PackPanel pack = panel_packer(view.dtype);
  pool.parallel_for(result.matrix.panel_count(), 4, [&](size_t begin, size_t end) {
    for (size_t p = begin; p < end; ++p)
      pack({.type = view.dtype,
            .first = view.bytes.data() + p * panel_rows * view.row_stride(),
            .row_stride = view.row_stride(),
            .rows = std::min<size_t>(panel_rows, view.rows - p * panel_rows),
            .k = view.cols},
           panels + p * panel_size);
  });
  return result;
}

namespace {

// Sixteen bytes, which every x86-64 has registers for: the packing is bound by memory.
using Words = uint32_t __attribute__((vector_size(16)));
using Halves = uint16_t __attribute__((vector_size(16)));

template <typename Vector>
Vector load(const std::byte* p) {
  Vector result;
  std::memcpy(&result, p, sizeof result);
  return result;
}

template <typename Vector>
void store(uint8_t* p, Vector v) {
  std::memcpy(p, &v, sizeof v);
}

// Square tiles turned around: value j of row i becomes value i of row j.
void turn(Words (&v)[4]) {
  const Words a = __builtin_shufflevector(v[0], v[1], 0, 4, 1, 5);
  const Words b = __builtin_shufflevector(v[0], v[1], 2, 6, 3, 7);
  const Words c = __builtin_shufflevector(v[2], v[3], 0, 4, 1, 5);
  const Words d = __builtin_shufflevector(v[2], v[3], 2, 6, 3, 7);
  v[0] = __builtin_shufflevector(a, c, 0, 1, 4, 5);
  v[1] = __builtin_shufflevector(a, c, 2, 3, 6, 7);
  v[2] = __builtin_shufflevector(b, d, 0, 1, 4, 5);
  v[3] = __builtin_shufflevector(b, d, 2, 3, 6, 7);
}

Halves low_halves(Halves a, Halves b) {
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}
Halves high_halves(Halves a, Halves b) {
  return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}

// Three rounds that lay vectors i and i + 4 side by side.
void turn(Halves (&v)[8]) {
  for (int round = 0; round < 3; ++round) {
    const Halves before[8] = {v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]};
    for (int i = 0; i < 4; ++i) {
      v[2 * i] = low_halves(before[i], before[i + 4]);
      v[2 * i + 1] = high_halves(before[i], before[i + 4]);
    }
  }
}

// How a type's values travel: units that keep together (a pair of bf16, or one value), and the
// vector that holds a square tile's row of them.
template <typename VectorOf, size_t kBytes>
struct Units {
  using Vector = VectorOf;
  static constexpr size_t kUnitBytes = kBytes;
  static constexpr size_t kCount = sizeof(Vector) / kUnitBytes;  // in a vector, and rows of a tile
};
using WordUnits = Units<Words, 4>;
using HalfUnits = Units<Halves, 2>;

// A few lines of each row at a time: the reading has a stream for each row, which the processor
// follows, and the tiles being written stay in the first-level cache.
constexpr size_t kStripBytes = 256;

// Rows `row` to `row + U::kCount - 1` of a panel, `units` of them.
template <typename U>
void pack_rows(const std::byte* const* rows, size_t row, size_t first, size_t end, uint8_t* out) {
  for (size_t unit = first; unit < end; unit += U::kCount) {
    typename U::Vector v[U::kCount];
    for (size_t i = 0; i < U::kCount; ++i)
      v[i] = load<typename U::Vector>(rows[row + i] + unit * U::kUnitBytes);
    turn(v);
    for (size_t i = 0; i < U::kCount; ++i)
      store(out + ((unit + i) * kFloatPanelRows + row) * U::kUnitBytes, v[i]);
  }
}

// What does not fill a tile, byte by byte: `bytes` of each row.
template <typename U>
void pack_rest(const std::byte* row, size_t place, size_t first_byte, size_t bytes, uint8_t* out) {
  for (size_t at = first_byte; at < bytes; ++at) {
    const size_t unit = at / U::kUnitBytes, within = at % U::kUnitBytes;
    out[(unit * kFloatPanelRows + place) * U::kUnitBytes + within] =
        std::to_integer<uint8_t>(row[at]);
  }
}

template <typename U>
void pack_panel(const PanelRows& in, uint8_t* out) {
  const size_t bytes = row_bytes(in.type, in.k);
  const size_t tiled_rows = in.rows / U::kCount * U::kCount;
  const size_t tiled = bytes / sizeof(typename U::Vector) * U::kCount;  // units
  const std::byte* values[kFloatPanelRows] = {};
  for (size_t r = 0; r < in.rows; ++r) values[r] = in.first + r * in.row_stride;
  constexpr size_t kStrip = kStripBytes / U::kUnitBytes;
  for (size_t unit = 0; unit < tiled; unit += kStrip)
    for (size_t r = 0; r < tiled_rows; r += U::kCount)
      pack_rows<U>(values, r, unit, std::min(tiled, unit + kStrip), out);
  for (size_t r = 0; r < in.rows; ++r)
    pack_rest<U>(values[r], r, r < tiled_rows ? tiled * U::kUnitBytes : 0, bytes, out);
}

}  // namespace

void pack_float_panel(const PanelRows& in, uint8_t* out) {
  if (in.type == DType::f16)
    pack_panel<HalfUnits>(in, out);
  else
    pack_panel<WordUnits>(in, out);
}

namespace {

using LevelTable = std::array<int8_t, 16>;

constexpr size_t kScales = 16;    // for 256 values
constexpr uint8_t kNegative = 8;  // the bit of a code that is a value's sign

// Codes 0 to 7 are the grid's levels, 8 to 15 the same with the other sign; in the iq1 types eight
// times the level and one more, or one less.
template <size_t kCount>
constexpr LevelTable both_signs(const std::array<int8_t, kCount>& levels) {
  LevelTable table = {};
  for (size_t i = 0; i < kCount; ++i) {
    table[i] = levels[i];
    table[i + kNegative] = static_cast<int8_t>(-levels[i]);
  }
  return table;
}

constexpr LevelTable more_and_less(const std::array<int8_t, 3>& levels) {
  LevelTable table = {};
  for (size_t i = 0; i < levels.size(); ++i) {
    table[i] = static_cast<int8_t>(8 * levels[i] + 1);
    table[i + kNegative] = static_cast<int8_t>(8 * levels[i] - 1);
  }
  return table;
}

// The code of a grid's value: at its place plus one, since there is a value of -1.
using CodeOf = std::array<uint8_t, 64>;

template <size_t kCount>
constexpr CodeOf codes_of(const std::array<int8_t, kCount>& levels) {
  CodeOf codes = {};
  for (size_t i = 0; i < kCount; ++i)
    codes[static_cast<size_t>(levels[i] + 1)] = static_cast<uint8_t>(i);
  return codes;
}

constexpr CodeOf kCodesIQ2 = codes_of(kLevelsIQ2), kCodesIQ3XXS = codes_of(kLevelsIQ3XXS),
                 kCodesIQ3S = codes_of(kLevelsIQ3S), kCodesIQ1 = codes_of(kLevelsIQ1);

// 256 values of a row, one code in a byte.
struct LevelBlock {
  float unit;
  int8_t scale[kScales];
  uint8_t code[kSuperValues];
};

template <typename Block>
void read_block(const Block& block, const CodeOf& code_of, LevelBlock& out) {
  out.unit = grid_unit(block);
  size_t at = 0;
  walk_grid(block, [&](const auto& group, unsigned signs, int scale) {
    out.scale[at / (kSuperValues / kScales)] = static_cast<int8_t>(scale);
    for (size_t i = 0; i < group.size(); ++i) {
      const unsigned sign = (signs >> i & 1) * kNegative;
      out.code[at + i] = static_cast<uint8_t>(code_of[static_cast<size_t>(group[i] + 1)] | sign);
    }
    at += group.size();
  });
}

template <typename Block>
void read_as(const std::byte* block, const CodeOf& code_of, LevelBlock& out) {
  read_block(*reinterpret_cast<const Block*>(block), code_of, out);
}

void read_level_block(DType type, const std::byte* block, LevelBlock& out) {
  if (type == DType::iq3_xxs) return read_as<BlockIQ3XXS>(block, kCodesIQ3XXS, out);
  if (type == DType::iq3_s) return read_as<BlockIQ3S>(block, kCodesIQ3S, out);
  if (type == DType::iq2_xxs) return read_as<BlockIQ2XXS>(block, kCodesIQ2, out);
  if (type == DType::iq2_xs) return read_as<BlockIQ2XS>(block, kCodesIQ2, out);
  if (type == DType::iq2_s) return read_as<BlockIQ2S>(block, kCodesIQ2, out);
  if (type == DType::iq1_s) return read_as<BlockIQ1S>(block, kCodesIQ1, out);
  TYTO_ASSERT(type == DType::iq1_m);
  read_as<BlockIQ1M>(block, kCodesIQ1, out);
}

void put_scales(const LevelBlock& block, size_t row, uint8_t* out) {
  std::memcpy(out + sizeof(float) * row, &block.unit, sizeof(float));
  for (size_t s = 0; s < kScales; ++s)
    out[sizeof(float) * kPanelRows + kPanelRows * s + row] = static_cast<uint8_t>(block.scale[s]);
}

// Groups g and g + 4 of a block of 32 share bytes.
void put_codes(const LevelBlock& block, size_t row, size_t code_bytes, uint8_t* out) {
  for (size_t b = 0; b < kSuperValues / kBlockValues; ++b) {
    const uint8_t* codes = block.code + b * kBlockValues;
    uint8_t packed[kBlockValues / 2];
    for (size_t i = 0; i < sizeof packed; ++i)
      packed[i] = static_cast<uint8_t>(codes[i] | codes[i + sizeof packed] << 4);
    for (size_t g = 0; g < kGroups / 2; ++g)
      std::memcpy(out + b * code_bytes + 64 * g + 4 * row, packed + 4 * g, 4);
  }
}

}  // namespace

const int8_t* grid_levels(DType type) {
  static constexpr LevelTable kIQ3XXS = both_signs(kLevelsIQ3XXS), kIQ3S = both_signs(kLevelsIQ3S),
                              kIQ2 = both_signs(kLevelsIQ2), kIQ1 = more_and_less(kLevelsIQ1);
  if (type == DType::iq3_xxs) return kIQ3XXS.data();
  if (type == DType::iq3_s) return kIQ3S.data();
  if (type == DType::iq1_s || type == DType::iq1_m) return kIQ1.data();
  return kIQ2.data();
}

void pack_grid_panel(const PanelRows& in, uint8_t* out) {
  const PackedLayout layout = packed_layout(in.type);
  const size_t units = in.k / kSuperValues, block_bytes = info(in.type).block_bytes;
  uint8_t* codes = out + layout.scales_size(in.k);
  std::memset(out, 0, units * layout.scale_bytes);
  std::memset(codes, 0, units * layout.scale_blocks * layout.code_bytes);
  for (size_t unit = 0; unit < units; ++unit)
    for (size_t row = 0; row < in.rows; ++row) {
      LevelBlock block;
      read_level_block(in.type, in.first + row * in.row_stride + unit * block_bytes, block);
      put_scales(block, row, out + unit * layout.scale_bytes);
      put_codes(block, row, layout.code_bytes,
                codes + unit * layout.scale_blocks * layout.code_bytes);
    }
}

}  // namespace tyto::cpu
