// The block formats: exact decoding, and our own encoders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace tyto {

// Decodes whole blocks; out.size() values from exactly row_bytes(type, out.size()) bytes.
// Bit-exact with the format's public definition, in f32 arithmetic.
void dequantize(DType type, std::span<const std::byte> in, std::span<float> out);

// Encodes whole blocks, round to nearest; any type that is_encodable. The block types store a NaN
// as zero and let magnitudes beyond their scale's range saturate: a caller to whom that matters
// looks before encoding (largest_encodable). `importance` may be empty. Otherwise `in` is one row,
// and importance[i] says how much an error in in[i] matters: 0 to 1. Types with 8 bits and more
// ignore it.
void quantize(DType type, std::span<const float> in, std::span<std::byte> out,
              std::span<const float> importance = {});

// The largest magnitude that does not become infinite or saturate when it is encoded. A block may
// hold larger ones, but whatever its other values are it holds this.
float largest_encodable(DType type);

// Rows of values in eight bits: one scale per row, codes of -127..127 times it. What an NPU's
// integer GEMMs multiply.

// The scale is the largest magnitude / 127. A row of zeros, or of values too small for a scale in
// the normal range, has scale 0 and codes 0.
struct Int8RowScale {
  float scale = 0, inverse = 0;
};
Int8RowScale int8_row_scale(float largest_magnitude);

// The nearest codes. Values must be finite and within the magnitude the scale was made for.
void encode_int8(std::span<const float> values, float inverse, int8_t* codes);

}  // namespace tyto
