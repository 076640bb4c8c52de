// Blocks of the types that Tyto reads and does not write: any bits are codes, so they are made of
// random ones, and only the factors are chosen.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "tensor/float16.h"
#include "tensor/quant_blocks.h"

namespace tyto::testing_support {

inline constexpr std::array kReadTypes = {
    DType::q2_k,    DType::q3_k,   DType::iq4_nl, DType::iq4_xs, DType::iq3_xxs, DType::iq3_s,
    DType::iq2_xxs, DType::iq2_xs, DType::iq2_s,  DType::iq1_s,  DType::iq1_m,   DType::mxfp4};

// The largest magnitude of a block whose d is one; of q2_k, whose dmin is 1.5 times d, about that.
inline float largest_of_unit(DType type) {
  switch (type) {
    case DType::q2_k:
      return 22.5f;
    case DType::q3_k:
      return 32 * 4;
    case DType::iq4_nl:
      return 127;
    case DType::iq4_xs:
      return 32 * 127;
    case DType::iq3_xxs:
      return 15.5f / 2 * 62;
    case DType::iq3_s:
      return 31 * 15;
    case DType::mxfp4:
      return 6;
    default:
      return type == DType::iq1_s || type == DType::iq1_m ? 15 * 1.125f : 15.5f / 4 * 43;
  }
}

inline void set_factor(DType type, std::byte* block, float d) {
  const uint16_t half = f32_to_f16(d), min = f32_to_f16(1.5f * d);
  switch (type) {
    case DType::q2_k:
      std::memcpy(block + offsetof(BlockQ2K, d), &half, 2);
      std::memcpy(block + offsetof(BlockQ2K, dmin), &min, 2);
      return;
    case DType::q3_k:
      std::memcpy(block + offsetof(BlockQ3K, d), &half, 2);
      return;
    case DType::iq1_m: {
      auto& scales = reinterpret_cast<BlockIQ1M*>(block)->scales;
      for (size_t i = 0; i < 4; ++i)
        scales[i][1] = static_cast<uint8_t>((scales[i][1] & 15) | (half >> (4 * i) & 15) << 4);
      return;
    }
    case DType::mxfp4:
      block[0] = static_cast<std::byte>(127 + std::lround(std::log2(d)));
      return;
    default:
      std::memcpy(block, &half, 2);
  }
}

// `count` values, none of them much larger than `largest`.
template <typename Random>
std::vector<std::byte> random_blocks(DType type, uint64_t count, float largest, Random& random) {
  std::vector<std::byte> bytes(row_bytes(type, count));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  for (size_t at = 0; at < bytes.size(); at += info(type).block_bytes)
    set_factor(type, bytes.data() + at, largest / largest_of_unit(type));
  return bytes;
}

}  // namespace tyto::testing_support
