// Turning a matrix of 16-bit values: what was a row becomes a column.
#pragma once

#include <cstdint>

namespace tyto {

// out[c * out_stride + r] = in[r * in_stride + c], strides in values. Quickest where `rows` and
// `cols` are multiples of 8.
void transpose_16bit(const uint16_t* in, uint64_t in_stride, uint64_t rows, uint64_t cols,
                     uint16_t* out, uint64_t out_stride);

}  // namespace tyto
