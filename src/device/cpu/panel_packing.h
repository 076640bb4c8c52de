// Panels (device/cpu/packed_weights.h) from the rows as a file has them, at the
// memory's speed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace tyto::cpu {

// A panel's rows, as many as there are, as the file has them.
struct PanelRows {
  DType type;
  const std::byte* first;
  size_t row_stride;  // bytes
  size_t rows;
  size_t k;
};

// Writes every byte of one panel's scales and codes; those of rows that are not there are zero.
// What lies between the scales and the next cache line is left as it is. `out` begins a cache line.
using PackPanel = void (*)(const PanelRows& in, uint8_t* out);

// For block-quantised types; null for others. The loops need AVX2, as every set with packed kernels
// does.
namespace avx2 {
PackPanel panel_packer(DType type);
}

}  // namespace tyto::cpu
