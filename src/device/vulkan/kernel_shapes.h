#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"

namespace tyto::vulkan {

// Sizes of the kernels for attention on a GPU: their constants and grids follow from them. Where
// none fits into a workgroup's shared memory, which takes heads of more than 256, `threads` is 0.

// The heads of a model, and what a GPU's workgroups have.
struct AttentionSite {
  uint32_t heads = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t subgroup_size = 0;
  uint32_t shared_bytes = 0;
};

// For shaders/attention_decode.comp.
struct FewRowsShape {
  uint32_t threads = 0;
  uint32_t group = 0;   // query heads of a workgroup
  uint32_t lanes = 0;   // threads that share a position
  uint32_t unroll = 0;  // positions that a thread has in flight
  uint32_t shared_bytes = 0;

  uint32_t positions_at_once() const { return threads / lanes * unroll; }
};
FewRowsShape few_rows_shape(const AttentionSite& site);

// Workgroups that share the positions of a row, when `rows` rows of at most `positions` are
// attended to at once on a GPU that wants `workgroups`.
uint32_t attention_splits(const AttentionSite& site, uint32_t rows, uint32_t positions,
                          uint32_t workgroups);

// For shaders/attention_prefill_coop.comp, else for shaders/attention_prefill.comp.
struct ManyRowsShape {
  bool is_cooperative = false;
  uint32_t threads = 0;
  uint32_t group = 1;    // heads of a workgroup
  uint32_t tile = 0;     // rows of a workgroup
  uint32_t keys = 0;     // that it takes at once
  uint32_t rows = 0;     // a thread's; with cooperative matrices: blocks of rows of a subgroup
  uint32_t columns = 0;  // a thread's; with cooperative matrices: their layout
  uint32_t parts = 0;    // workgroups that share a tile of the call's table
  uint32_t shared_bytes = 0;
};
// `has_matrices`: cooperative ones of f16, 16 x 16 x 16; `layout`: what coop_layout.comp says of
// them; `table_tile`: most rows of the table's tiles, a power of two.
ManyRowsShape many_rows_shape(const AttentionSite& site, uint32_t table_tile, bool has_matrices,
                              uint32_t layout);

// How a product of many rows is cut into workgroups: the specialization constants of
// shaders/gemm_coop.comp and shaders/gemm_tiled.comp. Any shape gives the right result; which one
// is fast depends on the product and on the GPU.

struct GemmProduct {
  uint64_t rows = 0;     // x's
  uint64_t columns = 0;  // in all matrices of the dispatch together; swiglu has two
  uint64_t k = 0;
  bool is_pair = false;    // swiglu
  uint32_t tile_rows = 0;  // that tiles must have, of rows; 0: any
};

struct GemmMachine {
  uint32_t subgroup_size = 32;
  uint32_t compute_units = 1;
  uint32_t shared_bytes = 32768;  // that a workgroup may have
};

struct GemmShape {
  uint32_t bm = 0, bn = 0, bk = 0;  // a workgroup's tile and its step along k
  uint32_t part_rows = 0;  // the tile's that a subgroup has (gemm_coop) or a thread (gemm_tiled)
  uint32_t part_columns = 0;
  uint32_t threads = 0;  // per workgroup

  bool operator==(const GemmShape&) const = default;
};

GemmShape cooperative_gemm_shape(const GemmProduct& product, const GemmMachine& machine);
GemmShape tiled_gemm_shape(const GemmProduct& product, const GemmMachine& machine);

// What a workgroup of that shape declares.
uint64_t cooperative_shared_bytes(const GemmShape& shape, bool is_pair);
uint64_t tiled_shared_bytes(const GemmShape& shape);

// Matrices in the forms that the GPU's kernels read.
//
// A form is a list of planes: codes apart from their scales, so that codes can be read sixteen
// aligned bytes at a time. Every row of a matrix has as many bytes in a plane, one row after the
// other; planes begin at multiples of 256 bytes. The shaders compute the same offsets
// (shaders/weights.glsl).

enum class WeightForm : uint8_t {
  f32,   // values; rows of the three plain forms end in zeros, to a multiple of 32 values
  f16,   //
  bf16,  //
  q8_0,  // codes, then an f16 scale for each 32
  q4_0,  // 16 bytes for each 32 values, as ggml packs them, then f16 scales
  q4_k,  // 128 bytes for each 256 values, then d, dmin and the twelve bytes of scales
  q6_k,  // low nibbles, high pairs of bits, 8-bit scales, f16 factors; for each 256 values
  // The rest as q4_0 or q4_k: codes, fifth or third bits where there are some, then scales.
  q4_1,
  q5_0,
  q5_1,
  q2_k,
  q3_k,
  q5_k,  // as q4_k, high bits last
  iq4_nl,
  iq4_xs,
  mxfp4,
  i8,  // codes, zeros to a multiple of 32 of them, then an f32 scale for each row
};

// As the shaders' variants are called: gemv_q4_k.
std::string_view name(WeightForm form);

// The form for matrices of a type: the type itself, or f16 for types without kernels of their own.
WeightForm weight_form(DType type);

struct WeightPlane {
  uint64_t offset = 0;     // from the beginning of the matrix
  uint64_t row_bytes = 0;  // each row's of the matrix
};

struct WeightLayout {
  std::vector<WeightPlane> planes;
  uint64_t bytes = 0;  // all planes', to a multiple of 256: kernels may read whole words
};

WeightLayout weight_layout(WeightForm form, uint64_t rows, uint64_t cols);

// Writes rows `first_row` on of one plane, as many as `to` has room for; `to` holds whole rows.
// `form` is the one of the view's type, or f16 or i8, which any type becomes: i8 by rounding to 255
// steps in each row. A view of i8 codes has no scales: the caller copies them.
void write_plane(const TensorView& view, WeightForm form, size_t plane, uint64_t first_row,
                 std::span<std::byte> to);

// How a product with a few rows is divided among the threads of a GPU (shaders/gemv*.comp).

struct GemvGpu {
  uint32_t subgroup_size = 32;
  uint32_t shared_bytes = 32 << 10;  // that a workgroup may have
  uint32_t compute_units = 0;        // 0: unknown
  bool multiplies_bytes = false;     // dot products of four bytes (shaderIntegerDotProduct)
};

struct GemvProblem {
  WeightForm form = WeightForm::f16;
  uint32_t rows = 1;      // rows of x that the kernel takes
  uint64_t k = 0;         // values in each
  uint64_t outputs = 0;   // rows of the results, all matrices together; of pairs, pairs
  bool is_pairs = false;  // swiglu: two rows of weights for each output
};

struct GemvShape {
  bool in_integers = false;  // gemv_dot_*, whose constant 7 is K to the next multiple of 32
  uint32_t threads = 128;    // a workgroup's: constant 0
  uint32_t outputs = 4;      // that a workgroup makes together: constant 2
  // gemv_dot_* makes several groups of outputs in a workgroup if there are fewer workgroups than
  // groups. gemv_* has a workgroup for each.
  uint32_t most_workgroups = UINT32_MAX;
};

GemvShape gemv_shape(const GemvProblem& problem, const GemvGpu& gpu);

}  // namespace tyto::vulkan
