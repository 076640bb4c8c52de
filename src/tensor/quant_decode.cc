// Decoding: plain loops of fixed length without branches, which compilers vectorise for whatever
// instruction set this file is built for. `__restrict`, since bytes could otherwise alias floats;
// "unroll 1", since gcc vectorises a loop of 16 only if it has not unrolled it whole before.
#include <array>
#include <type_traits>

#include "base/error.h"
#include "tensor/float16.h"
#include "tensor/quant_blocks.h"
#include "tensor/quant_grids.h"

namespace tyto {
namespace {

void decode(const BlockQ8_0& block, float* __restrict out) {
  const float d = to_f32(block.d);
  for (size_t i = 0; i < 32; ++i) out[i] = static_cast<float>(block.code[i]) * d;
}

void decode(const BlockQ4_0& block, float* __restrict out) {
  const float d = to_f32(block.d);
#pragma GCC unroll 1
  for (size_t i = 0; i < 16; ++i) out[i] = static_cast<float>((block.code[i] & 15) - 8) * d;
#pragma GCC unroll 1
  for (size_t i = 0; i < 16; ++i) out[i + 16] = static_cast<float>((block.code[i] >> 4) - 8) * d;
}

void decode(const BlockQ4_1& block, float* __restrict out) {
  const float d = to_f32(block.d), m = to_f32(block.m);
#pragma GCC unroll 1
  for (size_t i = 0; i < 16; ++i) out[i] = static_cast<float>(block.code[i] & 15) * d + m;
#pragma GCC unroll 1
  for (size_t i = 0; i < 16; ++i) out[i + 16] = static_cast<float>(block.code[i] >> 4) * d + m;
}

// One bit per value: masks from a table vectorise everywhere, shifts by i only from AVX2 on.
constexpr std::array<uint32_t, 32> kBit = [] {
  std::array<uint32_t, 32> bits = {};
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = 1u << i;
  return bits;
}();

void decode(const BlockQ5_0& block, float* __restrict out) {
  const float d = to_f32(block.d);
  const uint32_t high = std::bit_cast<uint32_t>(block.high);
#pragma GCC unroll 1
  for (size_t i = 0; i < 16; ++i) {
    const int fifth = (high & kBit[i]) != 0 ? 16 : 0;
    out[i] = static_cast<float>(((block.code[i] & 15) | fifth) - 16) * d;
  }
#pragma GCC unroll 1
  for (size_t i = 0; i < 16; ++i) {
    const int fifth = (high & kBit[i + 16]) != 0 ? 16 : 0;
    out[i + 16] = static_cast<float>(((block.code[i] >> 4) | fifth) - 16) * d;
  }
}

void decode(const BlockQ5_1& block, float* __restrict out) {
  const float d = to_f32(block.d), m = to_f32(block.m);
  const uint32_t high = std::bit_cast<uint32_t>(block.high);
#pragma GCC unroll 1
  for (size_t i = 0; i < 16; ++i) {
    const int fifth = (high & kBit[i]) != 0 ? 16 : 0;
    out[i] = static_cast<float>((block.code[i] & 15) | fifth) * d + m;
  }
#pragma GCC unroll 1
  for (size_t i = 0; i < 16; ++i) {
    const int fifth = (high & kBit[i + 16]) != 0 ? 16 : 0;
    out[i + 16] = static_cast<float>((block.code[i] >> 4) | fifth) * d + m;
  }
}

void decode(const BlockQ2K& block, float* __restrict out) {
  const float d = to_f32(block.d), dmin = to_f32(block.dmin);
  for (size_t s = 0; s < 16; ++s) {
    const uint8_t* code = block.code + 32 * (s / 8) + 16 * (s % 2);
    const int shift = static_cast<int>(s / 2 % 4 * 2);
    const float scale = d * static_cast<float>(block.scales[s] & 15);
    const float min = dmin * static_cast<float>(block.scales[s] >> 4);
#pragma GCC unroll 1
    for (size_t i = 0; i < 16; ++i)
      out[16 * s + i] = scale * static_cast<float>((code[i] >> shift) & 3) - min;
  }
}

int signed_scale(const PackedSignedScales& packed, size_t s) {
  const int low = packed[s % 8] >> (s / 8 * 4), high = packed[8 + s % 4] >> (s / 4 * 2);
  return ((low & 15) | ((high & 3) << 4)) - 32;
}

void decode(const BlockQ3K& block, float* __restrict out) {
  const float d = to_f32(block.d);
  for (size_t s = 0; s < 16; ++s) {
    const uint8_t* code = block.code + 32 * (s / 8) + 16 * (s % 2);
    const uint8_t* high = block.high + 16 * (s % 2);
    const int shift = static_cast<int>(s / 2 % 4 * 2), bit = static_cast<int>(s / 2);
    const float scale = d * static_cast<float>(signed_scale(block.scales, s));
#pragma GCC unroll 1
    for (size_t i = 0; i < 16; ++i) {
      const int third = ((high[i] >> bit) & 1) << 2;
      out[16 * s + i] = scale * static_cast<float>((((code[i] >> shift) & 3) | third) - 4);
    }
  }
}

// d * scale and dmin * min of each sub-block.
struct SubScales {
  float scale[8];
  float min[8];
};

SubScales unpack_scales(const PackedScales& packed, float d, float dmin) {
  SubScales result;
  for (size_t i = 0; i < 4; ++i) {
    const int scale = (packed[i + 8] & 15) | ((packed[i] >> 6) << 4);
    const int min = (packed[i + 8] >> 4) | ((packed[i + 4] >> 6) << 4);
    result.scale[i] = d * static_cast<float>(packed[i] & 63);
    result.min[i] = dmin * static_cast<float>(packed[i + 4] & 63);
    result.scale[i + 4] = d * static_cast<float>(scale);
    result.min[i + 4] = dmin * static_cast<float>(min);
  }
  return result;
}

void decode(const BlockQ4K& block, float* __restrict out) {
  const SubScales sub = unpack_scales(block.scales, to_f32(block.d), to_f32(block.dmin));
  for (size_t pair = 0; pair < 4; ++pair, out += 64) {
    const uint8_t* code = block.code + 32 * pair;
    const float scale0 = sub.scale[2 * pair], scale1 = sub.scale[2 * pair + 1];
    const float min0 = sub.min[2 * pair], min1 = sub.min[2 * pair + 1];
    for (size_t i = 0; i < 32; ++i) out[i] = scale0 * static_cast<float>(code[i] & 15) - min0;
    for (size_t i = 0; i < 32; ++i) out[i + 32] = scale1 * static_cast<float>(code[i] >> 4) - min1;
  }
}

void decode(const BlockQ5K& block, float* __restrict out) {
  const SubScales sub = unpack_scales(block.scales, to_f32(block.d), to_f32(block.dmin));
  for (size_t pair = 0; pair < 4; ++pair, out += 64) {
    const uint8_t* code = block.code + 32 * pair;
    const float scale0 = sub.scale[2 * pair], scale1 = sub.scale[2 * pair + 1];
    const float min0 = sub.min[2 * pair], min1 = sub.min[2 * pair + 1];
    for (size_t i = 0; i < 32; ++i) {
      const int bits = block.high[i] >> (2 * pair);
      out[i] = scale0 * static_cast<float>((code[i] & 15) | ((bits & 1) << 4)) - min0;
      out[i + 32] = scale1 * static_cast<float>((code[i] >> 4) | ((bits & 2) << 3)) - min1;
    }
  }
}

void decode(const BlockQ6K& block, float* __restrict out) {
  const float d = to_f32(block.d);
  for (size_t part = 0; part < 4; ++part) {
    const size_t half = part / 2, first = 16 * (part % 2);
    const uint8_t* low = block.low + 64 * half + first;
    const uint8_t* high = block.high + 32 * half + first;
    const int8_t* scale = block.scale + 8 * half + part % 2;
    const float scale0 = d * scale[0], scale1 = d * scale[2];
    const float scale2 = d * scale[4], scale3 = d * scale[6];
    float* __restrict to = out + 128 * half + first;
#pragma GCC unroll 1
    for (size_t i = 0; i < 16; ++i) {
      const int a = low[i], b = low[i + 32], pairs = high[i];
      to[i] = scale0 * static_cast<float>(((a & 15) | ((pairs & 3) << 4)) - 32);
      to[i + 32] = scale1 * static_cast<float>(((b & 15) | ((pairs & 12) << 2)) - 32);
      to[i + 64] = scale2 * static_cast<float>(((a >> 4) | (pairs & 48)) - 32);
      to[i + 96] = scale3 * static_cast<float>(((b >> 4) | ((pairs & 192) >> 2)) - 32);
    }
  }
}

template <typename Block>
void decode_blocks(const std::byte* in, float* out, size_t blocks) {
  const Block* block = reinterpret_cast<const Block*>(in);
  for (size_t i = 0; i < blocks; ++i) decode(block[i], out + i * Block::kValues);
}

}  // namespace

void decode_blocks(DType type, const std::byte* in, float* out, size_t blocks) {
  switch (type) {
    case DType::q8_0:
      return decode_blocks<BlockQ8_0>(in, out, blocks);
    case DType::q4_0:
      return decode_blocks<BlockQ4_0>(in, out, blocks);
    case DType::q4_1:
      return decode_blocks<BlockQ4_1>(in, out, blocks);
    case DType::q5_0:
      return decode_blocks<BlockQ5_0>(in, out, blocks);
    case DType::q5_1:
      return decode_blocks<BlockQ5_1>(in, out, blocks);
    case DType::q2_k:
      return decode_blocks<BlockQ2K>(in, out, blocks);
    case DType::q3_k:
      return decode_blocks<BlockQ3K>(in, out, blocks);
    case DType::q4_k:
      return decode_blocks<BlockQ4K>(in, out, blocks);
    case DType::q5_k:
      return decode_blocks<BlockQ5K>(in, out, blocks);
    case DType::q6_k:
      return decode_blocks<BlockQ6K>(in, out, blocks);
    case DType::iq4_nl:
    case DType::iq4_xs:
    case DType::iq3_xxs:
    case DType::iq3_s:
    case DType::iq2_xxs:
    case DType::iq2_xs:
    case DType::iq2_s:
    case DType::iq1_s:
    case DType::iq1_m:
    case DType::mxfp4:
      return decode_iq_blocks(type, in, out, blocks);
    case DType::f32:
    case DType::f16:
    case DType::bf16:
    case DType::i32:
    case DType::i8:
      break;
  }
  TYTO_ASSERT(!"a quantised type");
}

// Decoding the types whose codes are places in a table (quant_blocks.h).

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
