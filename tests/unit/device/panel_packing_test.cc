// Packed panels against the layout as device/cpu/packed_weights.h describes it, value by value.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "device/cpu/packed_weights.h"
#include "support/random_blocks.h"
#include "tensor/quant.h"
#include "tensor/quant_blocks.h"

namespace tyto::cpu {
namespace {

constexpr DType kPanelTypes[] = {
    DType::q8_0, DType::q4_0, DType::q4_1, DType::q5_0,   DType::q5_1,   DType::q4_k, DType::q5_k,
    DType::q6_k, DType::q2_k, DType::q3_k, DType::iq4_nl, DType::iq4_xs, DType::mxfp4};

template <typename Block>
const Block& block_at(const std::byte* row, size_t index) {
  return reinterpret_cast<const Block*>(row)[index];
}

unsigned nibble_of(const uint8_t* nibbles, size_t i) {  // values i and i + 16 in a byte
  return i < 16 ? nibbles[i] & 15u : nibbles[i - 16] >> 4;
}

unsigned fifth_bit(const std::array<uint8_t, 4>& high, size_t i) {
  return high[i / 8] >> i % 8 & 1u;
}

// Bits 4 s % 8 on of the byte of value i in sub-block s.
template <typename Block>
unsigned k_nibble(const Block& block, size_t s, size_t i) {
  return block.code[32 * (s / 2) + i] >> 4 * (s % 2) & 15u;
}

unsigned q6_k_code(const BlockQ6K& block, size_t s, size_t i) {
  const size_t half = s / 4, quarter = s % 4;
  const unsigned low = block.low[64 * half + 32 * (quarter % 2) + i] >> 4 * (quarter / 2) & 15u;
  return low | (block.high[32 * half + i] >> 2 * quarter & 3u) << 4;
}

template <typename Block>
unsigned bit_pair(const Block& block, size_t s, size_t i) {
  return block.code[32 * (s / 4) + i] >> 2 * (s % 4) & 3u;
}

// The unsigned code of value `i` of block `b` (32 values) of a row, as a panel holds it.
unsigned code_of(DType type, const std::byte* row, size_t b, size_t i) {
  switch (type) {
    case DType::q8_0:
      return static_cast<uint8_t>(block_at<BlockQ8_0>(row, b).code[i] + 128);
    case DType::q4_0:
      return nibble_of(block_at<BlockQ4_0>(row, b).code, i);
    case DType::q4_1:
      return nibble_of(block_at<BlockQ4_1>(row, b).code, i);
    case DType::q5_0: {
      const auto& block = block_at<BlockQ5_0>(row, b);
      return nibble_of(block.code, i) | fifth_bit(block.high, i) << 4;
    }
    case DType::q5_1: {
      const auto& block = block_at<BlockQ5_1>(row, b);
      return nibble_of(block.code, i) | fifth_bit(block.high, i) << 4;
    }
    case DType::q4_k:
      return k_nibble(block_at<BlockQ4K>(row, b / 8), b % 8, i);
    case DType::q5_k: {
      const auto& block = block_at<BlockQ5K>(row, b / 8);
      return k_nibble(block, b % 8, i) | (block.high[i] >> b % 8 & 1u) << 4;
    }
    case DType::q2_k:
      return bit_pair(block_at<BlockQ2K>(row, b / 8), b % 8, i);
    case DType::q3_k: {
      const auto& block = block_at<BlockQ3K>(row, b / 8);
      return bit_pair(block, b % 8, i) | (block.high[i] >> b % 8 & 1u) << 2;
    }
    case DType::iq4_nl:
      return nibble_of(block_at<BlockIQ4NL>(row, b).code, i);
    case DType::mxfp4:
      return nibble_of(block_at<BlockMXFP4>(row, b).code, i);
    case DType::iq4_xs:
      return nibble_of(block_at<BlockIQ4XS>(row, b / 8).code[b % 8], i);
    default:
      return q6_k_code(block_at<BlockQ6K>(row, b / 8), b % 8, i);
  }
}

void put_code(DType type, unsigned code, uint8_t* block, size_t row, size_t i) {
  const size_t group = i / 4, byte = 4 * row + i % 4;
  const auto add = [](uint8_t& to, unsigned bits) { to = static_cast<uint8_t>(to | bits); };
  if (type == DType::q8_0) {
    block[64 * group + byte] = static_cast<uint8_t>(code);
    return;
  }
  if (type == DType::q2_k || type == DType::q3_k) {
    add(block[64 * (group / 4) + byte], (code & 3) << 2 * (group % 4));
    if (type == DType::q3_k) add(block[128 + byte], (code >> 2) << group);
    return;
  }
  add(block[64 * (group % 4) + byte], (code & 15) << 4 * (group / 4));
  if (packed_layout(type).code_bytes == 320) add(block[256 + byte], (code >> 4) << group);
  if (type == DType::q6_k)
    add(block[256 + 64 * (group / 4) + byte], (code >> 4) << 2 * (group % 4));
}

template <typename Block>
void put_simple_scales(const std::byte* row, size_t unit, uint8_t* out, size_t r) {
  const Block& block = block_at<Block>(row, unit);
  std::memcpy(out + 2 * r, &block.d, 2);
  if constexpr (requires { block.m; }) std::memcpy(out + 32 + 2 * r, &block.m, 2);
}

template <typename Block>
void put_k_scales(const std::byte* row, size_t unit, uint8_t* out, size_t r) {
  const Block& block = block_at<Block>(row, unit);
  std::memcpy(out + 2 * r, &block.d, 2);
  std::memcpy(out + 32 + 2 * r, &block.dmin, 2);
  const PackedScales& p = block.scales;
  for (size_t s = 0; s < 8; ++s) {
    const size_t i = s % 4;
    const int scale = s < 4 ? p[i] & 63 : (p[i + 8] & 15) | p[i] >> 6 << 4;
    const int minimum = s < 4 ? p[i + 4] & 63 : p[i + 8] >> 4 | p[i + 4] >> 6 << 4;
    out[64 + 32 * s + r] = static_cast<uint8_t>(scale);
    out[64 + 32 * s + 16 + r] = static_cast<uint8_t>(minimum);
  }
}

void put_q2_k_scales(const BlockQ2K& block, uint8_t* out, size_t r) {
  std::memcpy(out + 2 * r, &block.d, 2);
  std::memcpy(out + 32 + 2 * r, &block.dmin, 2);
  for (size_t s = 0; s < 16; ++s) out[64 + 16 * s + r] = block.scales[s];
}

void put_q3_k_scales(const BlockQ3K& block, uint8_t* out, size_t r) {
  std::memcpy(out + 2 * r, &block.d, 2);
  const PackedSignedScales& p = block.scales;
  for (size_t s = 0; s < 16; ++s) {
    const int low = s < 8 ? p[s] & 15 : p[s - 8] >> 4;
    const int high = p[8 + s % 4] >> 2 * (s / 4) & 3;
    out[32 + 16 * s + r] = static_cast<uint8_t>((low | high << 4) - 32);
  }
}

void put_iq4_xs_scales(const BlockIQ4XS& block, uint8_t* out, size_t r) {
  std::memcpy(out + 2 * r, &block.d, 2);
  for (size_t s = 0; s < 8; ++s) {
    const int low = block.low[s / 2] >> 4 * (s % 2) & 15;
    const int high = block.high[s / 4] >> 2 * (s % 4) & 3;
    out[32 + 16 * s + r] = static_cast<uint8_t>((low | high << 4) - 32);
  }
}

void put_power(const BlockMXFP4& block, uint8_t* out, size_t r) {
  const uint16_t bf16 = f32_to_bf16(std::ldexp(1.0f, block.exponent - 128));
  std::memcpy(out + 2 * r, &bf16, 2);
}

void put_scales(DType type, const std::byte* row, size_t unit, uint8_t* out, size_t r) {
  switch (type) {
    case DType::q8_0:
      return put_simple_scales<BlockQ8_0>(row, unit, out, r);
    case DType::q4_0:
      return put_simple_scales<BlockQ4_0>(row, unit, out, r);
    case DType::q4_1:
      return put_simple_scales<BlockQ4_1>(row, unit, out, r);
    case DType::q5_0:
      return put_simple_scales<BlockQ5_0>(row, unit, out, r);
    case DType::q5_1:
      return put_simple_scales<BlockQ5_1>(row, unit, out, r);
    case DType::q2_k:
      return put_q2_k_scales(block_at<BlockQ2K>(row, unit), out, r);
    case DType::q3_k:
      return put_q3_k_scales(block_at<BlockQ3K>(row, unit), out, r);
    case DType::iq4_nl:
      return put_simple_scales<BlockIQ4NL>(row, unit, out, r);
    case DType::iq4_xs:
      return put_iq4_xs_scales(block_at<BlockIQ4XS>(row, unit), out, r);
    case DType::mxfp4:
      return put_power(block_at<BlockMXFP4>(row, unit), out, r);
    case DType::q4_k:
      return put_k_scales<BlockQ4K>(row, unit, out, r);
    case DType::q5_k:
      return put_k_scales<BlockQ5K>(row, unit, out, r);
    default: {
      const auto& block = block_at<BlockQ6K>(row, unit);
      std::memcpy(out + 2 * r, &block.d, 2);
      for (size_t s = 0; s < 16; ++s) out[32 + 16 * s + r] = static_cast<uint8_t>(block.scale[s]);
    }
  }
}

std::vector<uint8_t> plainly_packed(const TensorView& view) {
  const PackedLayout layout = packed_layout(view.dtype);
  const size_t panels = (view.rows + kPanelRows - 1) / kPanelRows;
  const size_t size = layout.panel_size(view.cols);
  std::vector<uint8_t> out(panels * size);
  for (size_t row = 0; row < view.rows; ++row) {
    uint8_t* panel = out.data() + row / kPanelRows * size;
    const std::byte* in = view.row(row).data();
    const size_t r = row % kPanelRows, blocks = view.cols / kBlockValues;
    for (size_t unit = 0; unit < blocks / layout.scale_blocks; ++unit)
      put_scales(view.dtype, in, unit, panel + unit * layout.scale_bytes, r);
    for (size_t b = 0; b < blocks; ++b)
      for (size_t i = 0; i < kBlockValues; ++i)
        put_code(view.dtype, code_of(view.dtype, in, b, i),
                 panel + layout.scales_size(view.cols) + b * layout.code_bytes, r, i);
  }
  return out;
}

TEST(PanelPacking, LaysOutEveryBitAsDescribed) {
  if (!__builtin_cpu_supports("avx2")) GTEST_SKIP() << "nothing is packed without AVX2";
  std::mt19937 random(7);
  for (unsigned threads : {1u, 5u}) {
    ThreadPool pool(threads);
    for (DType type : kPanelTypes)
      for (size_t units : {1, 2, 3, 8, 17})
        for (size_t rows : {1, 7, 15, 16, 17, 33, 64}) {
          const size_t k = units * info(type).block_values;
          // Not at a multiple of anything, as a tensor of a file may lie; any bits are codes.
          std::vector<std::byte> memory(rows * row_bytes(type, k) + 1);
          for (std::byte& byte : memory) byte = static_cast<std::byte>(random());
          const TensorView view{type, rows, k, std::span(memory).subspan(1)};
          const PackedWeights packed = pack_weights(view, pool);
          const std::vector<uint8_t> expected = plainly_packed(view);
          ASSERT_EQ(packed.bytes, expected.size());
          ASSERT_EQ(std::memcmp(packed.matrix.panels, expected.data(), expected.size()), 0)
              << info(type).name << " units=" << units << " rows=" << rows;
        }
  }
}

// A value as the panel's description has it: factor, scale of 16 values, level of its code.
float value_in_panel(DType type, const uint8_t* panel, size_t k, size_t row, size_t column) {
  const PackedLayout layout = packed_layout(type);
  const uint8_t* scales = panel + column / 256 * layout.scale_bytes;
  float factor;
  std::memcpy(&factor, scales + 4 * row, 4);
  const auto scale = static_cast<int8_t>(scales[64 + 16 * (column % 256 / 16) + row]);
  const size_t group = column % 32 / 4;
  const uint8_t* codes = panel + layout.scales_size(k) + column / 32 * layout.code_bytes;
  const uint8_t byte = codes[64 * (group % 4) + 4 * row + column % 4];
  const int level = grid_levels(type)[group < 4 ? byte & 15 : byte >> 4];
  return factor * static_cast<float>(scale) * static_cast<float>(level);
}

TEST(PanelPacking, ValuesOnAGridBecomeLevels) {
  std::mt19937 random(11);
  ThreadPool pool(2);
  for (DType type : testing_support::kReadTypes) {
    if (!is_on_grid(type)) continue;
    const size_t rows = 21, k = 3 * 256;
    const auto bytes = testing_support::random_blocks(type, rows * k, 1, random);
    std::vector<float> expected(rows * k);
    dequantize(type, bytes, expected);
    const PackedWeights packed = pack_weights({type, rows, k, bytes}, pool);
    ASSERT_EQ(packed.matrix.panel_count(), 2u);
    for (size_t i = 0; i < rows * k; ++i)
      ASSERT_EQ(value_in_panel(type, packed.matrix.panel(i / k / 16), k, i / k % 16, i % k),
                expected[i])
          << info(type).name << " " << i;
  }
}

TEST(PanelPacking, WritesNothingBesideItsPanel) {
  if (!__builtin_cpu_supports("avx2")) GTEST_SKIP() << "nothing is packed without AVX2";
  std::vector<DType> types(std::begin(kPanelTypes), std::end(kPanelTypes));
  types.push_back(DType::iq2_s);
  for (DType type : types) {
    const size_t k = 3 * info(type).block_values;
    const size_t stride = row_bytes(type, k), size = packed_layout(type).panel_size(k);
    const std::vector<std::byte> rows(5 * stride, std::byte{0xa5});
    alignas(64) static uint8_t out[1 << 16];
    ASSERT_LE(size + 128, sizeof out);
    std::memset(out, 0x77, sizeof out);
    (is_on_grid(type) ? pack_grid_panel : avx2::panel_packer(type))(
        {type, rows.data(), stride, 5, k}, out + 64);
    for (size_t i = 0; i < 64; ++i) {
      ASSERT_EQ(out[i], 0x77) << info(type).name;
      ASSERT_EQ(out[64 + size + i], 0x77) << info(type).name;
    }
  }
}

TEST(PanelPacking, OtherTypesHaveNoPanels) {
  for (DType type : {DType::f32, DType::f16, DType::bf16})
    EXPECT_EQ(avx2::panel_packer(type), nullptr);
}

}  // namespace
}  // namespace tyto::cpu
