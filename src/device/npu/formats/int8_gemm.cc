#include "device/npu/formats/int8_gemm.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <mutex>

#include "base/error.h"
#include "base/round_up.h"
#include "device/npu/formats/memory_plan.h"
#include "tensor/float16.h"
#include "tensor/quant.h"

namespace tyto {
namespace {

bool usable(float largest) {
  return largest <= kLargestWeight;  // false for NaN
}

// Reads a row twice rather than keep it: rows are of any length, and workers must not allocate.
// False if it cannot be stored.
bool encode_weight_row(const TensorView& tensor, uint64_t row, int8_t* codes, float& scale) {
  float piece[kPieceValues];
  const auto read = [&](uint64_t first) {
    const std::span values(piece, std::min(kPieceValues, tensor.cols - first));
    read_piece(tensor, row, first, values);
    return values;
  };
  float largest = 0.0f;
  for (uint64_t first = 0; first < tensor.cols; first += kPieceValues) {
    const float here = largest_magnitude(read(first));
    if (!usable(here)) return false;
    largest = std::max(largest, here);
  }
  const Int8RowScale chosen = int8_row_scale(largest);
  scale = chosen.scale;
  for (uint64_t first = 0; first < tensor.cols; first += kPieceValues) {
    encode_int8(read(first), chosen.inverse, codes + first);
  }
  return true;
}

void check_slot(const GemmSlot& slot) {
  if (slot.k == 0 || slot.k > kMaxGemmK)
    fail_input(slot.image, "K = {} is not between 1 and {}, beyond which int32 sums overflow",
               slot.k, kMaxGemmK);
  if (slot.k % 4 != 0)
    fail_input(slot.image, "K = {} is not a multiple of 4, the bytes that DMA moves at a time",
               slot.k);
  if (slot.columns == 0 || slot.columns > 8 || !std::has_single_bit(slot.columns))
    fail_input(slot.image, "{} columns; an image has 1, 2, 4 or 8", slot.columns);
  if (slot.m_tile == 0 || slot.n_tile == 0)
    fail_input(slot.image, "a tile of {} tokens and {} outputs is empty", slot.m_tile, slot.n_tile);
  if (slot.n_tile % slot.columns != 0)
    fail_input(slot.image, "{} outputs of a tile do not divide among {} columns", slot.n_tile,
               slot.columns);
}

}  // namespace

void check_slots(std::span<const GemmSlot> slots) {
  if (slots.size() > kMaxGemmSlots)
    fail_input(slots[kMaxGemmSlots].image, "is one of {} GEMM images; at most {} are held at once",
               slots.size(), kMaxGemmSlots);
  for (const GemmSlot& slot : slots) check_slot(slot);
}

namespace {

// Both slots are of one K.
bool suits_better(const GemmSlot& slot, const GemmSlot& other, uint64_t tokens) {
  const bool holds = slot.m_tile >= tokens, other_holds = other.m_tile >= tokens;
  if (holds != other_holds) return holds;
  return holds ? slot.m_tile < other.m_tile : slot.m_tile > other.m_tile;
}

}  // namespace

SlotChoice choose_slot(std::span<const GemmSlot> slots, uint64_t k, uint64_t tokens) {
  if (k == 0) return {std::nullopt, "a product over K = 0"};
  if (slots.empty()) return {std::nullopt, "no GEMM image is loaded"};
  std::optional<size_t> best;
  uint32_t largest = 0;
  for (size_t i = 0; i < slots.size(); ++i) {
    largest = std::max(largest, slots[i].k);
    if (slots[i].k < k) continue;
    const bool is_better =
        !best || slots[i].k < slots[*best].k ||
        (slots[i].k == slots[*best].k && suits_better(slots[i], slots[*best], tokens));
    if (is_better) best = i;
  }
  if (!best)
    return {std::nullopt,
            fmt::format("K = {} is more than the {} of the largest GEMM image", k, largest)};
  return {best, ""};
}

GemmExtent gemm_extent(const GemmSlot& slot, uint64_t tokens, uint64_t outputs, uint64_t k) {
  if (k > slot.k)
    fail_unsupported(slot.image, "a product over K = {} is more than its {}", k, slot.k);
  if (tokens == 0 || outputs == 0 || k == 0)
    fail_unsupported(slot.image, "a product of {} tokens, {} outputs and K = {} is empty", tokens,
                     outputs, k);
  return {tokens, outputs, k, round_up(tokens, slot.m_tile), round_up(outputs, slot.n_tile),
          slot.k};
}

GemmExtent weight_extent(std::span<const GemmSlot> slots, size_t choice, uint64_t outputs,
                         uint64_t k) {
  GemmExtent extent = gemm_extent(slots[choice], 1, outputs, k);
  for (const GemmSlot& slot : slots)
    if (slot.k == slots[choice].k)
      extent.padded_n = std::max(extent.padded_n, round_up(outputs, slot.n_tile));
  return extent;
}

void quantize_gemm_weights(const WeightSource& source, const GemmExtent& extent,
                           std::span<int8_t> codes, std::span<float> scales, ThreadPool& pool) {
  check_source(source, extent.outputs, extent.k);
  TYTO_ASSERT(codes.size() == extent.weight_bytes() && scales.size() == extent.outputs);
  std::atomic<uint64_t> unusable = UINT64_MAX;  // a row
  pool.parallel_for(extent.padded_n, 1, [&](size_t begin, size_t end) {
    for (size_t n = begin; n < end; ++n) {
      int8_t* row = codes.data() + n * extent.padded_k;
      const uint64_t real = n < extent.outputs ? extent.k : 0;
      std::fill(row + real, row + extent.padded_k, int8_t{0});
      if (real != 0 && !encode_weight_row(source.tensor, n, row, scales[n]))
        keep_lowest(unusable, n);
    }
  });
  if (unusable != UINT64_MAX) fail_unusable(source, unusable);
}

void quantize_gemm_activations(std::span<const float> x, const GemmExtent& extent,
                               std::span<int8_t> codes, std::span<float> scales) {
  TYTO_ASSERT(x.size() == extent.tokens * extent.k && scales.size() == extent.tokens);
  TYTO_ASSERT(codes.size() == extent.tokens * extent.padded_k);
  for (uint64_t t = 0; t < extent.tokens; ++t) {
    const std::span<const float> values = x.subspan(t * extent.k, extent.k);
    const float largest = largest_magnitude(values);
    int8_t* row = codes.data() + t * extent.padded_k;
    if (!std::isfinite(largest)) {
      scales[t] = std::numeric_limits<float>::quiet_NaN();
      std::fill(row, row + extent.padded_k, int8_t{0});
      continue;
    }
    const Int8RowScale chosen = int8_row_scale(largest);
    scales[t] = chosen.scale;
    encode_int8(values, chosen.inverse, row);
    std::fill(row + extent.k, row + extent.padded_k, int8_t{0});
  }
}

void dequantize_gemm(std::span<const int32_t> acc, uint64_t acc_stride,
                     std::span<const float> token_scales, std::span<const float> output_scales,
                     std::span<float> y, uint64_t y_stride) {
  const size_t tokens = token_scales.size(), outputs = output_scales.size();
  if (tokens == 0 || outputs == 0) return;
  TYTO_ASSERT(acc_stride >= outputs && y_stride >= outputs);
  TYTO_ASSERT(acc.size() >= (tokens - 1) * acc_stride + outputs);
  TYTO_ASSERT(y.size() >= (tokens - 1) * y_stride + outputs);
  for (size_t t = 0; t < tokens; ++t) {
    const int32_t* __restrict in = acc.data() + t * acc_stride;
    float* __restrict out = y.data() + t * y_stride;
    const float scale = token_scales[t];
    // In this order a product of two small scales cannot vanish before a large sum meets it.
    for (size_t n = 0; n < outputs; ++n)
      out[n] = static_cast<float>(in[n]) * scale * output_scales[n];
  }
}

namespace {

// A bf16 is off by at most half a unit in its last place, 2^-9 of it in the mean square. Eight
// times that, once for what y lost and once for operands that a kernel rounds to bfp16.
constexpr double kRounding = 0x1p-6;

struct Moments {
  double sum = 0;
  double squares = 0;
};

// Several sums side by side, which compilers make vector code of.
template <typename Value>
Moments moments(size_t count, const Value& value) {
  constexpr size_t kLanes = 8;
  double sums[kLanes] = {}, squares[kLanes] = {};
  const auto add = [&](size_t i, size_t lane) {
    const double each = value(i);
    sums[lane] += each;
    squares[lane] += each * each;
  };
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane) add(i + lane, lane);
  for (; i < count; ++i) add(i, 0);
  Moments all;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    all.sum += sums[lane];
    all.squares += squares[lane];
  }
  return all;
}

}  // namespace

std::vector<float> sum_of_rows(const TensorView& weight, uint64_t first_row, uint64_t rows,
                               ThreadPool& pool) {
  std::vector<double> total(weight.cols);
  std::mutex mutex;
  constexpr size_t kRowsAtOnce = 64;
  pool.parallel_for(rows, kRowsAtOnce, [&](size_t begin, size_t end) {
    std::vector<double> part(weight.cols);
    std::vector<float> row(weight.cols);
    for (size_t r = begin; r < end; ++r) {
      for (uint64_t first = 0; first < weight.cols; first += kPieceValues)
        read_piece(weight, first_row + r, first,
                   std::span(row).subspan(first, std::min(kPieceValues, weight.cols - first)));
      for (size_t i = 0; i < row.size(); ++i) part[i] += bf16_to_f32(f32_to_bf16(row[i]));
    }
    const std::lock_guard lock(mutex);
    for (size_t i = 0; i < part.size(); ++i) total[i] += part[i];
  });
  return {total.begin(), total.end()};
}

RowSum row_sum(std::span<const float> weight_sum, std::span<const float> x,
               std::span<const float> y) {
  const Moments expected =
      moments(x.size(), [&](size_t i) { return double{x[i]} * weight_sum[i]; });
  const Moments found = moments(y.size(), [&](size_t i) { return double{y[i]}; });
  return {found.sum, expected.sum,
          kRounding * (std::sqrt(found.squares) + std::sqrt(expected.squares))};
}

}  // namespace tyto
