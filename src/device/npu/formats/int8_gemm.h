// Matrix products on int8 GEMM images: which image takes a product, and the numbers in and out of
// it. An image ("slot") multiplies a tile of tokens by a tile of outputs over one fixed K, int8 x
// int8 into int32. Rows of weights and of activations have one scale each:
//   y[t][n] = sum over k of x[t][k] * w[n][k]  ~  acc[t][n] * x_scale[t] * w_scale[n]
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "device/npu/formats/memory_plan.h"
#include "tensor/dtype.h"

namespace tyto {

struct GemmSlot {
  std::string image;     // for messages
  uint32_t k = 0;        // values per row, compiled in
  uint32_t m_tile = 0;   // tokens of one dispatch
  uint32_t n_tile = 0;   // outputs of one dispatch
  uint32_t columns = 0;  // the array's: 1, 2, 4 or 8
};
constexpr size_t kMaxGemmSlots = 8;

// 127 * 127 * K must stay below 2^31.
constexpr uint32_t kMaxGemmK = INT32_MAX / (127 * 127);

// Throws an Error naming the image: more than kMaxGemmSlots, a K of 0, above kMaxGemmK or not whole
// 32-bit words (what DMA moves), an empty tile, outputs that do not divide among the columns.
void check_slots(std::span<const GemmSlot> slots);

struct SlotChoice {
  std::optional<size_t> slot;  // position in the list
  std::string reason;          // why none
};

// Rows are padded with zeros to the slot's K: they add nothing, so every slot with at least that K
// gives the same sums. The smallest such K wastes least. Of several slots of one K it is the
// smallest tile that holds all `tokens`, else the largest tile; among equals the first in the list.
SlotChoice choose_slot(std::span<const GemmSlot> slots, uint64_t k, uint64_t tokens);

// Sizes of the buffers of one product on a slot, and the dispatches it takes: tile by tile, the
// weights of a tile of outputs being contiguous, as are the activations of a tile of tokens.
struct GemmExtent {
  uint64_t tokens = 0, outputs = 0, k = 0;  // as the product has them
  uint64_t padded_m = 0, padded_n = 0, padded_k = 0;

  uint64_t weight_bytes() const { return padded_n * padded_k; }
  uint64_t activation_bytes() const { return padded_m * padded_k; }
};
GemmExtent gemm_extent(const GemmSlot& slot, uint64_t tokens, uint64_t outputs, uint64_t k);

// The weights of a product whose calls are on different slots of one K, the one that `choice` is
// of: the tiles of each are whole.
GemmExtent weight_extent(std::span<const GemmSlot> slots, size_t choice, uint64_t outputs,
                         uint64_t k);

// A row's scale is its largest magnitude / 127, its codes the nearest of -127..127; a row of zeros,
// or of values too small for a scale in the normal range, has scale 0 and codes 0. Padding is zero.

// codes: [padded_n][padded_k]; scales: one per output. Throws an Error naming the tensor if it is
// not [outputs, k] or a value is not finite (or beyond kLargestWeight).
void quantize_gemm_weights(const WeightSource& source, const GemmExtent& extent,
                           std::span<int8_t> codes, std::span<float> scales, ThreadPool& pool);

// x: [tokens][k]; codes: [tokens][padded_k]; scales: one per token. A token with a value that is
// not finite gets a scale of NaN, and so is all that comes of it. Allocates nothing.
void quantize_gemm_activations(std::span<const float> x, const GemmExtent& extent,
                               std::span<int8_t> codes, std::span<float> scales);

// Sums of any tile: row t begins at t * acc_stride, its outputs at t * y_stride of y. The spans of
// scales say how many tokens and outputs are real.
void dequantize_gemm(std::span<const int32_t> acc, uint64_t acc_stride,
                     std::span<const float> token_scales, std::span<const float> output_scales,
                     std::span<float> y, uint64_t y_stride);

// A check of a product y = x · weightᵀ that costs a fraction of it: a row of y adds up to x times
// the sum of the weight's rows.

// [cols]: the sum of `rows` rows, each value rounded to bf16 as the device has it.
std::vector<float> sum_of_rows(const TensorView& weight, uint64_t first_row, uint64_t rows,
                               ThreadPool& pool);

struct RowSum {
  double found = 0;
  double expected = 0;
  double tolerance = 0;  // what rounding alone may make of it
  // What is not finite never does.
  bool holds() const { return std::abs(found - expected) <= tolerance && std::isfinite(found); }
};

// The sum of one row of y, whose values were rounded to bf16; NaN where x or y holds one.
RowSum row_sum(std::span<const float> weight_sum, std::span<const float> x,
               std::span<const float> y);

}  // namespace tyto
