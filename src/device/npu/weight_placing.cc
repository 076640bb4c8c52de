#include "device/npu/weight_placing.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "tensor/float16.h"
#include "tensor/quant.h"

namespace tyto {
namespace {

// Rows turned together when columns lie apart: two cache lines are written for each column.
constexpr uint64_t kRowsAtOnce = 64;

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

}  // namespace

void place_rows(const TensorView& tensor, uint64_t first_row, uint64_t rows, const Pattern& place,
                std::span<uint16_t> argument, ThreadPool& pool) {
  const uint64_t cols = tensor.cols;
  const std::vector<uint64_t> starts = row_starts(place, rows, cols);
  const uint64_t stride = place.is_contiguous() ? 1 : place.dims.back().stride;
  TYTO_ASSERT(end_of(place, rows * cols) <= argument.size());
  pool.parallel_for(rows, kRowsAtOnce, [&](size_t begin, size_t end) {
    std::vector<float> wide;
    std::vector<uint16_t> tile(stride == 1 ? 0 : kRowsAtOnce * cols);
    for (size_t r = begin; stride == 1 && r < end; ++r)
      narrow_row(tensor, first_row + r, wide, argument.data() + starts[r]);
    for (size_t r0 = begin; stride != 1 && r0 < end; r0 += kRowsAtOnce) {
      const size_t count = std::min<size_t>(kRowsAtOnce, end - r0);
      for (size_t r = 0; r < count; ++r)
        narrow_row(tensor, first_row + r0 + r, wide, tile.data() + r * cols);
      for (uint64_t c = 0; c < cols; ++c)
        for (size_t r = 0; r < count; ++r)
          argument[starts[r0 + r] + c * stride] = tile[r * cols + c];
    }
  });
}

}  // namespace tyto
