// Decoding the types whose codes are places in a table (quant_iq_blocks.h).
#include <type_traits>

#include "base/error.h"
#include "tensor/quant_grid_walk.h"

namespace tyto {
namespace {

using Levels = std::array<int8_t, 16>;

void put_nibbles(const Nibbles32& code, const Levels& levels, float scale, float* __restrict out) {
  for (size_t i = 0; i < 16; ++i) out[i] = scale * static_cast<float>(levels[code[i] & 15]);
  for (size_t i = 0; i < 16; ++i) out[i + 16] = scale * static_cast<float>(levels[code[i] >> 4]);
}

void decode(const BlockIQ4NL& block, float* out) {
  put_nibbles(block.code, kNonLinear, to_f32(block.d), out);
}

void decode(const BlockIQ4XS& block, float* out) {
  const float d = to_f32(block.d);
  for (size_t s = 0; s < 8; ++s)
    put_nibbles(block.code[s], kNonLinear, d * static_cast<float>(block.scale(s)), out + 32 * s);
}

void decode(const BlockMXFP4& block, float* out) {
  put_nibbles(block.code, kTwiceFp4, half_power(block.exponent), out);
}

// Signs are as good as random: without branches this takes a quarter of the time.
template <size_t kGroup>
void put_signed(const std::array<int8_t, kGroup>& group, unsigned signs, float scale,
                float* __restrict out) {
  for (size_t i = 0; i < kGroup; ++i) {
    const int flip = -static_cast<int>(signs >> i & 1);
    out[i] = scale * static_cast<float>((group[i] ^ flip) - flip);
  }
}

void put_shifted(const std::array<int8_t, 8>& group, unsigned signs, float scale,
                 float* __restrict out) {
  const int shift = signs != 0 ? -1 : 1;
  for (size_t i = 0; i < 8; ++i) out[i] = scale * static_cast<float>(8 * group[i] + shift);
}

template <typename Block>
constexpr bool kIsShifted = std::is_same_v<Block, BlockIQ1S> || std::is_same_v<Block, BlockIQ1M>;

template <typename Block>
  requires requires(const Block& block) { grid_unit(block); }
void decode(const Block& block, float* out) {
  const float unit = grid_unit(block);
  walk_grid(block, [&](const auto& group, unsigned signs, int odd_scale) {
    const float scale = unit * static_cast<float>(odd_scale);
    if constexpr (kIsShifted<Block>)
      put_shifted(group, signs, scale, out);
    else
      put_signed(group, signs, scale, out);
    out += group.size();
  });
}

template <typename Block>
void decode_iq_blocks(const std::byte* in, float* out, size_t blocks) {
  const Block* block = reinterpret_cast<const Block*>(in);
  for (size_t i = 0; i < blocks; ++i) decode(block[i], out + i * Block::kValues);
}

}  // namespace

void decode_iq_blocks(DType type, const std::byte* in, float* out, size_t blocks) {
  if (type == DType::iq4_nl) return decode_iq_blocks<BlockIQ4NL>(in, out, blocks);
  if (type == DType::iq4_xs) return decode_iq_blocks<BlockIQ4XS>(in, out, blocks);
  if (type == DType::iq3_xxs) return decode_iq_blocks<BlockIQ3XXS>(in, out, blocks);
  if (type == DType::iq3_s) return decode_iq_blocks<BlockIQ3S>(in, out, blocks);
  if (type == DType::iq2_xxs) return decode_iq_blocks<BlockIQ2XXS>(in, out, blocks);
  if (type == DType::iq2_xs) return decode_iq_blocks<BlockIQ2XS>(in, out, blocks);
  if (type == DType::iq2_s) return decode_iq_blocks<BlockIQ2S>(in, out, blocks);
  if (type == DType::iq1_s) return decode_iq_blocks<BlockIQ1S>(in, out, blocks);
  if (type == DType::iq1_m) return decode_iq_blocks<BlockIQ1M>(in, out, blocks);
  if (type == DType::mxfp4) return decode_iq_blocks<BlockMXFP4>(in, out, blocks);
  TYTO_ASSERT(!"a type of decode_iq_blocks()");
}

}  // namespace tyto
