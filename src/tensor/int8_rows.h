// Rows of values in eight bits: one scale per row, codes of -127..127 times it. What an NPU's
// integer GEMMs multiply.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tyto {

// The scale is the largest magnitude / 127. A row of zeros, or of values too small for a scale in
// the normal range, has scale 0 and codes 0.
struct Int8RowScale {
  float scale = 0, inverse = 0;
};
Int8RowScale int8_row_scale(float largest_magnitude);

// The nearest codes. Values must be finite and within the magnitude the scale was made for.
void encode_int8(std::span<const float> values, float inverse, int8_t* codes);

}  // namespace tyto
