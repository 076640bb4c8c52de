// A tensor somebody else owns: type, shape, bytes. Never allocates.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace tyto {

// Row-major, at most two dimensions: [rows, cols], a vector being [1, cols].
// (Llama-family weights have no more; the KV cache and activations are addressed by their kernels.)
struct TensorView {
  DType dtype = DType::f32;
  uint64_t rows = 0;
  uint64_t cols = 0;
  std::span<const std::byte> bytes = {};

  bool empty() const { return bytes.empty(); }
  uint64_t values() const { return rows * cols; }
  uint64_t row_stride() const { return row_bytes(dtype, cols); }
  std::span<const std::byte> row(uint64_t index) const {
    return bytes.subspan(index * row_stride(), row_stride());
  }
};

}  // namespace tyto
