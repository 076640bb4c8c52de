#include "device/npu/formats/weight_placing.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "tensor/float16.h"
#include "tensor/quant.h"
#include "tensor/transpose.h"

namespace tyto {
namespace {

// As many columns side by side fill two cache lines, and the rows stay in the second-level cache.
constexpr uint64_t kPlacedRows = 64;

void narrow_row(const TensorView& tensor, uint64_t row, std::vector<float>& wide, uint16_t* out) {
  if (tensor.dtype == DType::bf16) {
    std::memcpy(out, tensor.row(row).data(), tensor.cols * sizeof(uint16_t));
    return;
  }
  wide.resize(tensor.cols);
  dequantize(tensor.dtype, tensor.row(row), wide);
  for (uint64_t c = 0; c < tensor.cols; ++c) out[c] = f32_to_bf16(wide[c]);
}

// Where each row begins. Every pattern of a weight ends in a dimension of whole columns.
std::vector<uint64_t> row_starts(const Pattern& place, uint64_t rows, uint64_t cols) {
  std::vector<uint64_t> starts;
  starts.reserve(rows);
  for_each_stretch(place, rows * cols, [&](const Stretch& stretch) {
    if (place.is_contiguous())
      for (uint64_t r = 0; r < rows; ++r) starts.push_back(stretch.at + r * cols);
    else
      starts.push_back(stretch.at);
  });
  TYTO_ASSERT(starts.size() == rows);
  return starts;
}

// Turns rows [first_row, first_row + order.size()) into columns. `order` is room for as many
// indices, `narrow` for as many rows.
void place_columns(const TensorView& tensor, uint64_t first_row, const uint64_t* starts,
                   uint64_t stride, std::span<uint32_t> order, std::vector<float>& wide,
                   std::span<uint16_t> narrow, uint16_t* argument) {
  const uint64_t cols = tensor.cols;
  // Rows that lie in pairs in the file become columns far apart: those that end up side by side are
  // brought together first.
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return starts[a] < starts[b]; });
  for (size_t i = 0; i < order.size(); ++i)
    narrow_row(tensor, first_row + order[i], wide, narrow.data() + i * cols);
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    for (end = begin + 1; end < order.size(); ++end)
      if (starts[order[end]] != starts[order[end - 1]] + 1) break;
    transpose_16bit(narrow.data() + begin * cols, cols, end - begin, cols,
                    argument + starts[order[begin]], stride);
  }
}

}  // namespace

void place_rows(const TensorView& tensor, uint64_t first_row, uint64_t rows, const Pattern& place,
                std::span<uint16_t> argument, ThreadPool& pool) {
  const uint64_t cols = tensor.cols;
  const std::vector<uint64_t> starts = row_starts(place, rows, cols);
  const uint64_t stride = place.is_contiguous() ? 1 : place.dims.back().stride;
  TYTO_ASSERT(end_of(place, rows * cols) <= argument.size());
  pool.parallel_for(rows, kPlacedRows, [&](size_t begin, size_t end) {
    std::vector<float> wide;
    for (size_t r = begin; stride == 1 && r < end; ++r)
      narrow_row(tensor, first_row + r, wide, argument.data() + starts[r]);
    if (stride == 1) return;
    std::array<uint32_t, kPlacedRows> order;
    std::vector<uint16_t> narrow(kPlacedRows * cols);
    for (size_t r = begin; r < end; r += kPlacedRows)
      place_columns(tensor, first_row + r, starts.data() + r, stride,
                    std::span(order).first(std::min<size_t>(kPlacedRows, end - r)), wide, narrow,
                    argument.data());
  });
}

}  // namespace tyto
