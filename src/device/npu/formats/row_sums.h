// A check of a product y = x · weightᵀ that costs a fraction of it: a row of y adds up to x times
// the sum of the weight's rows.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "tensor/view.h"

namespace tyto {

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

// Of one row of y, whose values were rounded to bf16; not a number where x or y holds one.
RowSum row_sum(std::span<const float> weight_sum, std::span<const float> x,
               std::span<const float> y);

}  // namespace tyto
