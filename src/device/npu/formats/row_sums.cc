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
