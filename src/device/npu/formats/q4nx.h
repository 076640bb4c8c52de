// The weights and the KV cache of the single-dispatch decode, as the device reads them. Bytes in,
// bytes out: nothing here knows XRT. Sizes and offsets come from q4nx_layout.h.
//
// A block is 32 rows x 256 columns in 5120 bytes: bf16 scales [8 groups][32 rows], bf16 minima
// [8][32], then 4-bit codes [2 halves of 16 rows][256 columns][8 bytes], where byte k holds row 2k
// of its half in the low bits and row 2k + 1 in the high ones. A weight is code * scale + minimum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "device/npu/formats/q4nx_layout.h"
#include "device/npu/formats/weight_rows.h"

namespace tyto {

constexpr uint64_t kQ4nxBlockBytes = kQ4nxBlockElements * 2;

// Where a block stands in its phase. The array's four columns come first (each is fed by itself),
// in a column the two DMA channels, and a channel's blocks in the order its two tiles take them.
// Row block `row_block` is computed in pass row_block / 16 by tile row_block % 4 of column
// row_block % 16 / 4.
uint64_t q4nx_block_index(const Q4nxPhase& phase, uint64_t row_block, uint64_t col_block);

// ---- From a model's rows to those of a phase

// Row of the gate_up phase with the up (gate) weights of a hidden unit.
uint64_t q4nx_up_row(const Q4nxLayout& layout, uint64_t unit);
uint64_t q4nx_gate_row(const Q4nxLayout& layout, uint64_t unit);

// One chunk of the head: token t is row t % rows of chunk t / rows.
Q4nxPhase q4nx_head_phase(const Q4nxLayout& layout);

// ---- Packing

// Consecutive rows of a phase and where they come from; rows in no piece are zero weights.
struct Q4nxPiece {
  const WeightSource* source;
  uint64_t source_row;
  uint64_t row;  // in the phase
  uint64_t rows;
};

// Quantises each row by groups of 32 columns: 16 levels from the minimum to the maximum, both kept
// as bf16, and codes chosen for the rounded pair. The minimum is rounded down, so that every value
// lies in the levels' range, and a constant group, of whatever value, has one close to it. A group
// of zeros decodes to exactly zero. A q4_1 group whose own scale and minimum are bf16 values, as
// those of a q4nx bundle are, keeps them and its codes. `pieces` are in the order of their rows.
// Throws an Error naming the tensor if it has not the phase's columns, or a value that is not
// finite or beyond kLargestWeight; `out` (phase.elements() * 2 bytes) then holds no particular
// weights.
void pack_q4nx(const Q4nxPhase& phase, std::span<const Q4nxPiece> pieces, std::span<std::byte> out,
               ThreadPool& pool);

struct Q4nxLayerSources {  // as stored in a checkpoint: (out, in)
  WeightSource q, k, v, o, gate, up, down;
};

// All of a layer: layout.layer_elements * 2 bytes.
void pack_q4nx_layer(const Q4nxLayout& layout, const Q4nxLayerSources& sources,
                     std::span<std::byte> out, ThreadPool& pool);

// All chunks of the head.
void pack_q4nx_head(const Q4nxLayout& layout, const WeightSource& head, std::span<std::byte> out,
                    ThreadPool& pool);

// ---- KV cache

// From one position of a head to its next.
uint64_t kv_position_bytes(const Q4nxLayout& layout);

// Lays the first `live` positions of every region out for another window of the same model. The
// other positions of `to_cache` keep what they held: the device does not look past L. The two
// caches are apart, or begin at the same byte of one buffer that holds the larger.
void repack_kv(const Q4nxLayout& from, std::span<const std::byte> from_cache, const Q4nxLayout& to,
               std::span<std::byte> to_cache, uint32_t live);

}  // namespace tyto
