#include "device/npu/formats/row_sums.h"

#include <cmath>
#include <mutex>

#include "device/npu/formats/weight_rows.h"
#include "tensor/float16.h"
#include "tensor/quant.h"

namespace tyto {
namespace {

// A bf16 is off by at most half a unit in its last place, 2^-9 of it in the mean square. Eight
// times that, once for what y lost and once for operands that a kernel rounds to bfp16.
constexpr double kRounding = 0x1p-6;

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
  // Several sums side by side, so that the loops take vectors.
  constexpr size_t kLanes = 8;
  double expected[kLanes] = {}, terms[kLanes] = {}, found[kLanes] = {}, squares[kLanes] = {};
  for (size_t i = 0; i < x.size(); ++i) {
    const double term = double{x[i]} * weight_sum[i];
    expected[i % kLanes] += term;
    terms[i % kLanes] += term * term;
  }
  for (size_t i = 0; i < y.size(); ++i) {
    found[i % kLanes] += y[i];
    squares[i % kLanes] += double{y[i]} * y[i];
  }
  for (size_t lane = 1; lane < kLanes; ++lane) {
    expected[0] += expected[lane];
    terms[0] += terms[lane];
    found[0] += found[lane];
    squares[0] += squares[lane];
  }
  return {found[0], expected[0], kRounding * (std::sqrt(squares[0]) + std::sqrt(terms[0]))};
}

}  // namespace tyto
