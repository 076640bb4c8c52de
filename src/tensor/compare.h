// Distances between two vectors of results, accumulated in double.
#pragma once

#include <span>

namespace tyto {

struct Comparison {
  double max_abs_error = 0;
  double max_abs_reference = 0;
  double cosine = 0;   // 1 when both are all zero
  double nmse = 0;     // |a - b|^2 / |b|^2
  bool finite = true;  // false when either side has a NaN or an infinity
};

Comparison compare(std::span<const float> actual, std::span<const float> reference);

}  // namespace tyto
