// Memory of the array that a launch takes, from the tiles its kernel works on. MLIR-AIR's registry
// lists the tiles; how many buffers each has is our reading of its designs.
#pragma once

#include <cstdint>

#include "device/vnpu/images/image.h"

namespace tyto::vxrt {

// The array holds columns * m rows by 4 * n columns of C at a time.
struct GemmTiles {
  uint32_t m, k_l2, k_l1, n;
  uint32_t in_bytes = 2, out_bytes = 4;  // per value of A and B, of C
  uint32_t columns = kColumns;

  // No larger than the matrices.
  GemmTiles within(uint64_t rows, uint64_t k, uint64_t cols) const;
};
LaunchNeeds gemm_needs(const GemmTiles& tiles);

// Each core takes `m_input` weight rows of `k` columns at a time, and makes `tile_m` outputs from
// them before it hands them on. Rows too long for L1 come one or two at a time instead of four,
// and without a second buffer where even that is too much.
struct GemvTiles {
  uint32_t tile_m, m_input;
  uint64_t k;
};
LaunchNeeds gemv_needs(const GemvTiles& tiles);

// `q_rows` of the queries stay while blocks of `kv_rows` keys and values pass by; causal masking
// needs as many rows in a core's block of queries as in one of keys.
struct AttentionTiles {
  uint32_t q_rows, kv_rows;
};
LaunchNeeds attention_needs(const AttentionTiles& tiles, uint32_t head_dim);

// Chunks of `values` of every operand, `bytes` for one value of all of them, twice.
LaunchNeeds element_needs(uint64_t values, uint32_t bytes);
LaunchNeeds rmsnorm_needs(uint64_t width);

// The fused decode: two blocks of weights at a time against all of the activations.
LaunchNeeds q4nx_needs(uint64_t cols);
LaunchNeeds decode_attention_needs(uint64_t position_values, uint32_t head_dim);

}  // namespace tyto::vxrt
