#include "device/npu/formats/weight_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.h"
#include "tensor/quant.h"

namespace tyto {

void check_source(const WeightSource& source, uint64_t rows, uint64_t cols) {
  const TensorView& tensor = source.tensor;
  if (tensor.rows != rows || tensor.cols != cols)
    fail_input(source.name, "is {} x {}, not {} x {}", tensor.rows, tensor.cols, rows, cols);
  if (tensor.dtype == DType::i32) fail_input(source.name, "weights cannot be i32");
  if (cols % info(tensor.dtype).block_values != 0)
    fail_input(source.name, "{} columns are not whole blocks of {}", cols, info(tensor.dtype).name);
  if (tensor.bytes.size() != rows * tensor.row_stride())
    fail_input(source.name, "has {} bytes, not {}", tensor.bytes.size(),
               rows * tensor.row_stride());
}

void read_piece(const TensorView& tensor, uint64_t row, uint64_t first, std::span<float> out) {
  TYTO_ASSERT(first % kPieceValues == 0 && first + out.size() <= tensor.cols);
  const uint64_t begin = row * tensor.row_stride() + row_bytes(tensor.dtype, first);
  dequantize(tensor.dtype, tensor.bytes.subspan(begin, row_bytes(tensor.dtype, out.size())), out);
}

float largest_magnitude(std::span<const float> values) {
  // Without their signs, floats are ordered as integers are, NaN above infinity: a comparison that
  // compilers may reorder, and so turn into vector code.
  int32_t largest = 0;
  for (const float value : values) {
    const int32_t magnitude = std::bit_cast<int32_t>(value) & 0x7fffffff;
    largest = magnitude > largest ? magnitude : largest;
  }
  return std::bit_cast<float>(largest);
}

void keep_lowest(std::atomic<uint64_t>& lowest, uint64_t value) {
  uint64_t seen = lowest.load(std::memory_order_relaxed);
  while (value < seen && !lowest.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

void fail_unusable(const WeightSource& source, uint64_t row) {
  float piece[kPieceValues];
  for (uint64_t first = 0; first < source.tensor.cols; first += kPieceValues) {
    const std::span values(piece, std::min(kPieceValues, source.tensor.cols - first));
    read_piece(source.tensor, row, first, values);
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::fabs(values[i]) <= kLargestWeight) continue;
      fail_input(source.name, "{} at row {}, column {} cannot be a weight", values[i], row,
                 first + i);
    }
  }
  assert_failed("a value of the row is unusable", __FILE__, __LINE__);
}

}  // namespace tyto
