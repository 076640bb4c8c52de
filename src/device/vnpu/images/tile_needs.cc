#include "device/vnpu/images/tile_needs.h"

#include <algorithm>

#include "device/npu/formats/q4nx_layout.h"

namespace tyto::vxrt {
namespace {

constexpr uint64_t kRowsUsed = 4;
constexpr uint64_t kBuffers = 2;  // one is filled while the other is worked on
constexpr uint64_t kStack = 1024;
constexpr uint64_t kFusedStack = 10240;
constexpr uint64_t kBf16 = 2, kF32 = 4;
constexpr uint64_t kHeadsAtOnce = 2, kStages = 4;  // of the prefill attention
constexpr uint64_t kDecodePositions = 16;          // of K and V that a core takes at a time

LaunchNeeds needs(uint64_t l1, uint64_t l2) {
  const auto clamped = [](uint64_t bytes) {
    return static_cast<uint32_t>(std::min<uint64_t>(bytes, UINT32_MAX));
  };
  return {clamped(l1), clamped(l2)};
}

uint64_t tile_limit(uint64_t tile, uint64_t size) {
  return std::max<uint64_t>(1, std::min(tile, size));
}

}  // namespace

GemmTiles GemmTiles::within(uint64_t rows, uint64_t k, uint64_t cols) const {
  GemmTiles result = *this;
  result.m = static_cast<uint32_t>(tile_limit(m, rows / columns));
  result.k_l2 = static_cast<uint32_t>(tile_limit(k_l2, k));
  result.k_l1 = static_cast<uint32_t>(tile_limit(k_l1, k));
  result.n = static_cast<uint32_t>(tile_limit(n, cols / kRowsUsed));
  return result;
}

// C has one buffer: it is added to until K is through.
LaunchNeeds gemm_needs(const GemmTiles& tiles) {
  const uint64_t m = tiles.m, n = tiles.n;
  const uint64_t l1 = kBuffers * (m + n) * tiles.k_l1 * tiles.in_bytes + m * n * tiles.out_bytes;
  const uint64_t all_m = m * tiles.columns, all_n = n * kRowsUsed;
  const uint64_t l2 =
      kBuffers * (all_m + all_n) * tiles.k_l2 * tiles.in_bytes + all_m * all_n * tiles.out_bytes;
  return needs(kStack + l1, l2);
}

LaunchNeeds gemv_needs(const GemvTiles& tiles) {
  const uint64_t fixed = kStack + tiles.k * kBf16 + kBuffers * tiles.tile_m * kBf16;
  uint64_t rows = tiles.m_input;
  uint64_t buffers = kBuffers;
  while (rows > 1 && fixed + buffers * rows * tiles.k * kBf16 > kL1Bytes) rows /= 2;
  if (fixed + buffers * rows * tiles.k * kBf16 > kL1Bytes) buffers = 1;
  return needs(fixed + buffers * rows * tiles.k * kBf16,
               kBuffers * tiles.tile_m * tiles.k * kBf16 * kColumns);
}

// Queries, keys, values and the output of one core, the scores between them, and the running
// maximum and sum of each row.
LaunchNeeds attention_needs(const AttentionTiles& tiles, uint32_t head_dim) {
  const uint64_t rows = tiles.kv_rows, wide = rows * head_dim * kBf16;
  const uint64_t l1 = 4 * wide + rows * rows * kBf16 + 2 * rows * kF32;
  const uint64_t l2 = kHeadsAtOnce * (2 * tiles.q_rows + 2 * kStages * rows) * head_dim * kBf16;
  return needs(kStack + l1, l2);
}

LaunchNeeds element_needs(uint64_t values, uint32_t bytes) {
  return needs(kStack + kBuffers * values * bytes, 0);
}

LaunchNeeds rmsnorm_needs(uint64_t width) {
  return needs(kStack + (2 * kBuffers + 1) * width * kBf16, 0);
}

LaunchNeeds q4nx_needs(uint64_t cols) {
  constexpr uint64_t kBlock = kQ4nxBlockElements * 2;
  const uint64_t l1 = kBuffers * kBlock + cols * kBf16 + kQ4nxBlockRows * kF32;
  return needs(kFusedStack + l1, kBuffers * kBlock * kColumns * kRowsUsed);
}

LaunchNeeds decode_attention_needs(uint64_t position_values, uint32_t head_dim) {
  const uint64_t l1 = kBuffers * 2 * kDecodePositions * head_dim * kBf16 + 4 * head_dim * kF32;
  return needs(kFusedStack + l1,
               kBuffers * 2 * kDecodePositions * position_values * kBf16 * kColumns);
}

}  // namespace tyto::vxrt
