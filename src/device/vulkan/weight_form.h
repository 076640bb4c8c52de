// Matrices in the forms that the GPU's kernels read.
//
// A form is a list of planes: codes apart from their scales, so that codes can be read sixteen
// aligned bytes at a time. Every row of a matrix has as many bytes in a plane, one row after the
// other; planes begin at multiples of 256 bytes. The shaders compute the same offsets
// (shaders/weights.glsl).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tensor/view.h"

namespace tyto::vulkan {

enum class WeightForm : uint8_t {
  f32,   // values; rows of the three plain forms end in zeros, to a multiple of 32 values
  f16,   //
  bf16,  //
  q8_0,  // codes, then an f16 scale for each 32
  q4_0,  // 16 bytes for each 32 values, as ggml packs them, then f16 scales
  q4_k,  // 128 bytes for each 256 values, then d, dmin and the twelve bytes of scales
  q6_k,  // low nibbles, high pairs of bits, 8-bit scales, f16 factors; for each 256 values
  i8,    // codes, zeros to a multiple of 32 of them, then an f32 scale for each row
};

// As the shaders' variants are called: gemv_q4_k.
std::string_view name(WeightForm form);

// The form for matrices of a type: the type itself, or f16 for types without kernels of their own.
WeightForm weight_form(DType type);

struct WeightPlane {
  uint64_t offset = 0;     // from the beginning of the matrix
  uint64_t row_bytes = 0;  // of each row of the matrix
};

struct WeightLayout {
  std::vector<WeightPlane> planes;
  uint64_t bytes = 0;  // of all planes, to a multiple of 256: kernels may read whole words
};

WeightLayout weight_layout(WeightForm form, uint64_t rows, uint64_t cols);

// Writes rows `first_row` on of one plane, as many as `to` has room for; `to` holds whole rows.
// `form` is the one of the view's type, or f16 or i8, which any type becomes: i8 by rounding to 255
// steps in each row. A view of i8 codes has no scales: whoever has them copies them.
void write_plane(const TensorView& view, WeightForm form, size_t plane, uint64_t first_row,
                 std::span<std::byte> to);

}  // namespace tyto::vulkan
