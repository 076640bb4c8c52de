// Distances between two vectors of results, accumulated in double.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "tensor/dtype.h"

namespace tyto {

struct Comparison {
  double max_abs_error = 0;
  double max_abs_reference = 0;
  double cosine = 0;   // 1 when both are all zero
  double nmse = 0;     // |a - b|^2 / |b|^2
  bool finite = true;  // false when either side has a NaN or an infinity
};

Comparison compare(std::span<const float> actual, std::span<const float> reference);

// Looking for values that are no finite numbers, or too large for what they shall become.

bool all_finite(std::span<const float> values);
// Whole blocks of any type, without decoding them.
bool all_finite(DType type, std::span<const std::byte> bytes);

struct FoundValue {
  uint64_t row = 0, column = 0;
  float value = 0;
};

// The first value, row by row, that is infinite or not a number.
std::optional<FoundValue> find_non_finite(const TensorView& view);

// The first value, row by row, whose magnitude is not at most `limit`: of a NaN it never is.
std::optional<FoundValue> find_beyond(const TensorView& view, float limit);

}  // namespace tyto
