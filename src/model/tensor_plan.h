// What a writer is told about a tensor before its bytes arrive.
#pragma once

#include <cstdint>
#include <string>

#include "tensor/dtype.h"

namespace tyto {

struct TensorPlan {
  std::string name;
  DType dtype = DType::f32;
  uint64_t rows = 0;  // 0: a vector
  uint64_t cols = 0;
  uint64_t slices = 0;  // the third dimension, a part of `rows`; 0: there is none

  uint64_t row_count() const { return rows == 0 ? 1 : rows; }
  uint64_t bytes() const { return row_count() * row_bytes(dtype, cols); }
};

}  // namespace tyto
