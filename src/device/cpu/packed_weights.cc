#include "device/cpu/packed_weights.h"

#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "device/cpu/huge_pages.h"
#include "tensor/quant_blocks.h"

namespace tyto::cpu {
namespace {

uint32_t load_word(const uint8_t* p) {
  uint32_t word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

void store_word(uint8_t* p, uint32_t word) {
  std::memcpy(p, &word, sizeof word);
}

// The codes of 32 values, one per byte, into one row of a panel's block. Four at a time as a word.
void put_bytes(const uint8_t* codes, uint8_t* out, size_t row) {
  for (size_t g = 0; g < kGroups; ++g)
    store_word(out + 64 * g + 4 * row, load_word(codes + 4 * g) ^ 0x80808080u);
}

void put_nibbles(const uint8_t* codes, uint8_t* out, size_t row) {
  for (size_t g = 0; g < 4; ++g) {
    const uint32_t low = load_word(codes + 4 * g) & 0x0f0f0f0fu;
    const uint32_t high = load_word(codes + 16 + 4 * g) & 0x0f0f0f0fu;
    store_word(out + 64 * g + 4 * row, low | high << 4);
  }
}

void put_fifth_bits(const uint8_t* codes, uint8_t* out, size_t row) {
  uint32_t bits = 0;
  for (size_t g = 0; g < kGroups; ++g) bits |= (load_word(codes + 4 * g) >> 4 & 0x01010101u) << g;
  store_word(out + 256 + 4 * row, bits);
}

void put_bit_pairs(const uint8_t* codes, uint8_t* out, size_t row) {
  for (size_t half = 0; half < 2; ++half) {
    uint32_t bits = 0;
    for (size_t g = 0; g < 4; ++g)
      bits |= (load_word(codes + 16 * half + 4 * g) >> 4 & 0x03030303u) << 2 * g;
    store_word(out + 256 + 64 * half + 4 * row, bits);
  }
}

void nibbles(const Nibbles32& in, uint8_t* codes) {
  for (size_t i = 0; i < 16; ++i) codes[i] = in[i] & 15;
  for (size_t i = 0; i < 16; ++i) codes[i + 16] = in[i] >> 4;
}

void add_fifth_bits(const std::array<uint8_t, 4>& high, uint8_t* codes) {
  const uint32_t bits = std::bit_cast<uint32_t>(high);
  for (size_t i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>(codes[i] | (bits >> i & 1) << 4);
}

void put_half(Half half, uint8_t* out, size_t row) {
  std::memcpy(out + 2 * row, &half, sizeof half);
}

// Where one row of one unit goes: a unit's scales, and the codes of its blocks.
struct Target {
  uint8_t* scales;
  uint8_t* codes;
  size_t row;
};

void put(const BlockQ8_0& block, const Target& to) {
  put_half(block.d, to.scales, to.row);
  put_bytes(reinterpret_cast<const uint8_t*>(block.code), to.codes, to.row);
}

void put(const BlockQ4_0& block, const Target& to) {
  uint8_t codes[32];
  nibbles(block.code, codes);
  put_half(block.d, to.scales, to.row);
  put_nibbles(codes, to.codes, to.row);
}

void put(const BlockQ4_1& block, const Target& to) {
  uint8_t codes[32];
  nibbles(block.code, codes);
  put_half(block.d, to.scales, to.row);
  put_half(block.m, to.scales + 32, to.row);
  put_nibbles(codes, to.codes, to.row);
}

void put(const BlockQ5_0& block, const Target& to) {
  uint8_t codes[32];
  nibbles(block.code, codes);
  add_fifth_bits(block.high, codes);
  put_half(block.d, to.scales, to.row);
  put_nibbles(codes, to.codes, to.row);
  put_fifth_bits(codes, to.codes, to.row);
}

void put(const BlockQ5_1& block, const Target& to) {
  uint8_t codes[32];
  nibbles(block.code, codes);
  add_fifth_bits(block.high, codes);
  put_half(block.d, to.scales, to.row);
  put_half(block.m, to.scales + 32, to.row);
  put_nibbles(codes, to.codes, to.row);
  put_fifth_bits(codes, to.codes, to.row);
}

void put_k_scales(const PackedScales& packed, Half d, Half dmin, const Target& to) {
  put_half(d, to.scales, to.row);
  put_half(dmin, to.scales + 32, to.row);
  for (size_t s = 0; s < 8; ++s) {
    const size_t i = s % 4;
    const int scale = s < 4 ? packed[i] & 63 : (packed[i + 8] & 15) | packed[i] >> 6 << 4;
    const int min = s < 4 ? packed[i + 4] & 63 : packed[i + 8] >> 4 | packed[i + 4] >> 6 << 4;
    to.scales[64 + 32 * s + to.row] = static_cast<uint8_t>(scale);
    to.scales[64 + 32 * s + 16 + to.row] = static_cast<uint8_t>(min);
  }
}

void put(const BlockQ4K& block, const Target& to) {
  put_k_scales(block.scales, block.d, block.dmin, to);
  for (size_t s = 0; s < 8; ++s) {
    uint8_t codes[32];
    const uint8_t* in = block.code + 32 * (s / 2);
    for (size_t i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>(in[i] >> 4 * (s % 2) & 15);
    put_nibbles(codes, to.codes + 256 * s, to.row);
  }
}

void put(const BlockQ5K& block, const Target& to) {
  put_k_scales(block.scales, block.d, block.dmin, to);
  for (size_t s = 0; s < 8; ++s) {
    uint8_t codes[32];
    const uint8_t* in = block.code + 32 * (s / 2);
    for (size_t i = 0; i < 32; ++i)
      codes[i] = static_cast<uint8_t>((in[i] >> 4 * (s % 2) & 15) | (block.high[i] >> s & 1) << 4);
    put_nibbles(codes, to.codes + 320 * s, to.row);
    put_fifth_bits(codes, to.codes + 320 * s, to.row);
  }
}

void put(const BlockQ6K& block, const Target& to) {
  put_half(block.d, to.scales, to.row);
  for (size_t s = 0; s < 16; ++s)
    to.scales[32 + 16 * s + to.row] = static_cast<uint8_t>(block.scale[s]);
  for (size_t s = 0; s < 8; ++s) {  // 32 values: quarter s % 4 of half s / 4
    uint8_t codes[32];
    const uint8_t* low = block.low + 64 * (s / 4) + 32 * (s % 2);
    const uint8_t* high = block.high + 32 * (s / 4);
    for (size_t i = 0; i < 32; ++i)
      codes[i] = static_cast<uint8_t>((low[i] >> 4 * (s % 4 / 2) & 15) |
                                      (high[i] >> 2 * (s % 4) & 3) << 4);
    put_nibbles(codes, to.codes + 384 * s, to.row);
    put_bit_pairs(codes, to.codes + 384 * s, to.row);
  }
}

// Rows that are not there keep the zeroed memory they have: a scale of zero.
template <typename Block>
void pack_panel(const TensorView& view, size_t panel, uint8_t* out) {
  const PackedLayout layout = packed_layout(view.dtype);
  uint8_t* codes = out + layout.scales_size(view.cols);
  const size_t rows = std::min<size_t>(kPanelRows, view.rows - panel * kPanelRows);
  const Block* blocks[kPanelRows] = {};
  for (size_t r = 0; r < rows; ++r)
    blocks[r] = reinterpret_cast<const Block*>(view.row(panel * kPanelRows + r).data());
  const size_t units = view.cols / Block::kValues;
  for (size_t u = 0; u < units; ++u)
    for (size_t r = 0; r < rows; ++r)
      put(blocks[r][u],
          {out + u * layout.scale_bytes, codes + u * layout.scale_blocks * layout.code_bytes, r});
}

using PackPanel = void (*)(const TensorView&, size_t, uint8_t*);

PackPanel panel_packer(DType type) {
  switch (type) {
    case DType::q8_0:
      return pack_panel<BlockQ8_0>;
    case DType::q4_0:
      return pack_panel<BlockQ4_0>;
    case DType::q4_1:
      return pack_panel<BlockQ4_1>;
    case DType::q5_0:
      return pack_panel<BlockQ5_0>;
    case DType::q5_1:
      return pack_panel<BlockQ5_1>;
    case DType::q4_k:
      return pack_panel<BlockQ4K>;
    case DType::q5_k:
      return pack_panel<BlockQ5K>;
    case DType::q6_k:
      return pack_panel<BlockQ6K>;
    default:
      return nullptr;
  }
}

}  // namespace

bool can_pack(DType type) {
  return panel_packer(type) != nullptr;
}

PackedWeights pack_weights(const TensorView& view, ThreadPool& pool) {
  TYTO_ASSERT(can_pack(view.dtype) && view.rows > 0 && view.cols > 0);
  PackedWeights result;
  result.matrix = {view.dtype, view.rows, view.cols, nullptr};
  const size_t panel_size = packed_layout(view.dtype).panel_size(view.cols);
  result.bytes = result.matrix.panel_count() * panel_size;
  result.memory = zeroed_huge_pages(result.bytes);
  uint8_t* panels = static_cast<uint8_t*>(result.memory.get());
  result.matrix.panels = panels;
  const PackPanel pack = panel_packer(view.dtype);
  pool.parallel_for(result.matrix.panel_count(), 4, [&](size_t begin, size_t end) {
    for (size_t p = begin; p < end; ++p) pack(view, p, panels + p * panel_size);
  });
  return result;
}

std::shared_ptr<const PackedWeights> PackedStore::pack(const TensorView& view, ThreadPool& pool) {
  std::weak_ptr<const PackedWeights>& entry = by_address_[view.bytes.data()];
  std::shared_ptr<const PackedWeights> packed = entry.lock();
  if (packed != nullptr && packed->matrix.type == view.dtype && packed->matrix.rows == view.rows &&
      packed->matrix.k == view.cols)
    return packed;
  packed = std::make_shared<PackedWeights>(pack_weights(view, pool));
  entry = packed;
  release_mapped_pages(view.bytes);  // the copy takes their place in memory
  return packed;
}

}  // namespace tyto::cpu
