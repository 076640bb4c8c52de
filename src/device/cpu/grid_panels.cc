#include "device/cpu/grid_panels.h"

#include <cstring>

#include "base/error.h"
#include "device/cpu/packed_weights.h"
#include "tensor/quant_grids.h"

namespace tyto::cpu {
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
