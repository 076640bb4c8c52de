// The weights and the KV cache of the single-dispatch decode, as the device reads them. Bytes in,
// bytes out: nothing here knows XRT. Sizes and offsets come from q4nx.h.
//
// A block is 32 rows x 256 columns in 5120 bytes: bf16 scales [8 groups][32 rows], bf16 minima
// [8][32], then 4-bit codes [2 halves of 16 rows][256 columns][8 bytes], where byte k holds row 2k
// of its half in the low bits and row 2k + 1 in the high ones. A weight is code * scale + minimum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "device/npu/formats/air_models.h"
#include "device/npu/formats/memory_plan.h"

namespace tyto {

// Where things are in the buffers of the single-dispatch q4nx decode. The builds that MLIR-AIR has
// are a table with its numbers; other dimensions follow the same rules where there are any, and
// Tyto's own where no build could exist.

// A matrix of the fused decode as it lies in a weight buffer. A block holds 32 rows x 256 columns
// in 2560 elements: scales, minima, codes. Rows are padded to whole passes of the 4 x 4 tiles and
// columns to whole blocks, with zero weights.
constexpr uint64_t kQ4nxBlockRows = 32;
constexpr uint64_t kQ4nxBlockCols = 256;
constexpr uint64_t kQ4nxBlockElements = 2560;
constexpr uint64_t kQ4nxPassRows = 16 * kQ4nxBlockRows;
constexpr uint64_t kQ4nxGroupCols = 32;  // columns that share a scale and a minimum

// What the 32-bit byte offset of a DMA descriptor reaches of one buffer.
constexpr uint64_t kQ4nxBufferBytes = uint64_t{1} << 32;

// What MLIR-AIR's builder is told for a model beside its dimensions (fused_decode.py and the
// Makefiles that call it).
struct Q4nxBuild {
  std::string_view model;
  AirDims dims;                // without `seq`, which the decode does not depend on
  uint64_t head_chunk_rows;    // rows of the head that one wave computes (VOCAB_CHUNK_I2)
  uint32_t layers_per_buffer;  // DECODE_WGROUP; 0: all layers and the head in one
};
std::span<const Q4nxBuild> q4nx_builds();

struct Q4nxPhase {
  uint64_t offset;      // inside its layer, or inside its chunk of the head
  uint64_t rows, cols;  // with the padding

  uint64_t elements() const {
    return rows / kQ4nxBlockRows * (cols / kQ4nxBlockCols) * kQ4nxBlockElements;
  }
};

// One argument with weights: consecutive layers, the head, or both in this order.
struct Q4nxWeightBuffer {
  size_t argument;  // XRT's index
  uint32_t first_layer, layers;
  bool has_head;
  uint64_t elements;
};

// In 16-bit elements.
struct Q4nxLayout {
  AirDims dims;
  uint32_t window;
  Q4nxPhase qkv;  // q rows, k rows, v rows, then the padding
  Q4nxPhase o;
  Q4nxPhase gate_up;  // glu_rows of up, as many of gate, and again; each of them padded by itself
  Q4nxPhase down;
  uint64_t glu_rows;
  uint64_t layer_elements;
  std::vector<Q4nxWeightBuffer> weight_buffers;  // by layer; the last one has the head
  uint64_t head_offset;                          // in its buffer
  uint64_t head_chunk_rows, head_chunk_elements, head_chunks;
  uint64_t weight_elements;  // in all buffers
  // The rms argument: two norms a layer, the rotation rows, the final norm. A rotation row is the
  // position's cos|sin; where layers have weights of their own for q, k and v it is followed by
  // these, and there is one row for each layer.
  uint64_t rope_offset, rope_row_elements;
  uint32_t rope_rows;
  uint64_t head_norms_at;  // in a rotation row: the norm of q's heads, then that of k's; 0: none
  uint64_t biases_at;      // in a rotation row: the biases of q, k and v; 0: none
  uint64_t final_norm_offset, norm_elements;
  uint64_t logits_offset, logits_elements;  // in y; before them, device scratch
  // A layer's cache is a region for each group of K, then one for each group of V; in a region a
  // position holds the group's heads side by side.
  uint32_t kv_groups, kv_group_heads;
  uint64_t kv_region_elements, kv_layer_elements, kv_elements;
};

// `window` is the padded context of the build (ATTN_MAXL). Weights that are more than
// `buffer_bytes` are split where no build says how: as many layers to a buffer as it takes, and a
// buffer for the head. Throws an unsupported Error for dimensions that the decode cannot have.
Q4nxLayout q4nx_layout(const AirDims& dims, uint32_t window,
                       uint64_t buffer_bytes = kQ4nxBufferBytes);

const Q4nxWeightBuffer& buffer_of(const Q4nxLayout& layout, uint32_t layer);
uint64_t rope_row_offset(const Q4nxLayout& layout, uint32_t layer);

// The argument list. Builds with split weights have the buffers after the first behind the cache.
AirProgram fused_decode_program(const AirDims& dims, uint32_t window,
                                uint64_t buffer_bytes = kQ4nxBufferBytes);

// The same program as a full ELF: the arguments without the three of an xclbin, and the length.
AirProgram fused_decode_elf_program(const AirDims& dims, uint32_t positions,
                                    uint64_t buffer_bytes = kQ4nxBufferBytes);

// Throws an unsupported Error that begins with `where` unless a build that was told `flags` (the
// text of its .decode_flags) has the layout of these dimensions.
void check_q4nx_flags(const std::string& flags, const AirDims& dims, const std::string& where);

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

// The instruction words of the single-dispatch decode for any length L, from two builds that differ
// in L alone. A few words depend on L, all of them linearly: what the attention cores are told, and
// where the new K and V go.

struct DecodeBuild {
  std::string file;  // for messages
  std::span<const uint32_t> words;
  uint32_t length = 0;  // its L: positions, the token being decoded included
};

struct WordRange {
  size_t first = 0;
  size_t count = 0;
  bool operator==(const WordRange&) const = default;
};

// The words of one window, and what its one instruction buffer holds.
class DecodeWords {
 public:
  // Copies what it needs. The longer of the two lengths is the window. Throws an Error naming the
  // file, and the word where there is one, unless the builds have equally many words, some depend
  // on L, and every word stays an unsigned 32-bit number on a straight line from L = 1 to the
  // window.
  static DecodeWords from_builds(const DecodeBuild& base, const DecodeBuild& reference);

  // Makes `words` those of this length. Returns the words that were written and must reach the
  // device. In a buffer that the previous call did not have, these are all; later they are the
  // cache lines whose words depend on the length, or none when the length is the same. Allocates
  // nothing. Throws an Error for a length outside [1, window] or a buffer of another size, and then
  // writes nothing.
  std::span<const WordRange> patch(uint32_t length, std::span<uint32_t> words);

  // The buffer's contents are gone: the next patch writes all words.
  void forget() { buffer_ = nullptr; }

  size_t size() const { return base_.size(); }
  uint32_t window() const { return window_; }

 private:
  struct Slope {
    size_t word;
    int64_t per_position;
  };

  DecodeWords() = default;
  uint32_t word_at(const Slope& slope, uint32_t length) const;

  std::string file_;
  std::vector<uint32_t> base_;
  std::vector<Slope> slopes_;     // ascending
  std::vector<WordRange> lines_;  // that the slopes lie in, ascending
  std::vector<WordRange> whole_;  // all words
  uint32_t base_length_ = 0;
  uint32_t window_ = 0;
  const uint32_t* buffer_ = nullptr;  // the one patched last; never read through
  uint32_t length_ = 0;               // what it holds
};

}  // namespace tyto
