// Looking for values that are no finite numbers, or too large for what they shall become.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "tensor/dtype.h"
#include "tensor/view.h"

namespace tyto {

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
