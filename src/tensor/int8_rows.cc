#include "tensor/int8_rows.h"

namespace tyto {

Int8RowScale int8_row_scale(float largest_magnitude) {
  const float scale = largest_magnitude / 127.0f;
  if (scale < 0x1p-126f) return {0.0f, 0.0f};  // its inverse could be infinite
  return {scale, 127.0f / largest_magnitude};
}

// To nearest: the sum is never negative, and truncated.
void encode_int8(std::span<const float> values, float inverse, int8_t* __restrict codes) {
  const float* __restrict in = values.data();
  for (size_t i = 0; i < values.size(); ++i)
    codes[i] = static_cast<int8_t>(static_cast<int32_t>(in[i] * inverse + 127.5f) - 127);
}

}  // namespace tyto
