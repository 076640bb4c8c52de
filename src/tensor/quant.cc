#include "tensor/quant.h"

#include <cstring>
#include <limits>

#include "base/error.h"
#include "tensor/float16.h"
#include "tensor/quant_blocks.h"

namespace tyto {
namespace {

template <float (*kToF32)(uint16_t)>
void widen(const std::byte* in, float* out, size_t values) {
  for (size_t i = 0; i < values; ++i) {
    uint16_t half;
    std::memcpy(&half, in + sizeof half * i, sizeof half);
    out[i] = kToF32(half);
  }
}

template <uint16_t (*kFromF32)(float)>
void narrow(const float* in, std::byte* out, size_t values) {
  for (size_t i = 0; i < values; ++i) {
    const uint16_t half = kFromF32(in[i]);
    std::memcpy(out + sizeof half * i, &half, sizeof half);
  }
}

}  // namespace

void dequantize(DType type, std::span<const std::byte> in, std::span<float> out) {
  TYTO_ASSERT(type != DType::i32 && in.size() == row_bytes(type, out.size()));
  if (out.empty()) return;
  if (type == DType::f32)
    std::memcpy(out.data(), in.data(), in.size());
  else if (type == DType::f16)
    widen<f16_to_f32>(in.data(), out.data(), out.size());
  else if (type == DType::bf16)
    widen<bf16_to_f32>(in.data(), out.data(), out.size());
  else
    decode_blocks(type, in.data(), out.data(), out.size() / info(type).block_values);
}

void quantize(DType type, std::span<const float> in, std::span<std::byte> out,
              std::span<const float> importance) {
  TYTO_ASSERT(is_encodable(type) && out.size() == row_bytes(type, in.size()));
  TYTO_ASSERT(importance.empty() || importance.size() == in.size());
  if (in.empty()) return;
  const size_t blocks = in.size() / info(type).block_values;
  if (type == DType::f32)
    std::memcpy(out.data(), in.data(), out.size());
  else if (type == DType::f16)
    narrow<f32_to_f16>(in.data(), out.data(), in.size());
  else if (type == DType::bf16)
    narrow<f32_to_bf16>(in.data(), out.data(), in.size());
  else if (type == DType::q4_k || type == DType::q5_k || type == DType::q6_k)
    encode_k_blocks(type, in.data(), importance.data(), out.data(), blocks);
  else if (type == DType::q8_0 || importance.empty())
    encode_simple_blocks(type, in.data(), out.data(), blocks);
  else
    encode_simple_row(type, in.data(), importance.data(), out.data(), blocks);
}

float largest_encodable(DType type) {
  if (type == DType::f32) return std::numeric_limits<float>::max();
  if (type == DType::bf16) return 0x1.fep127f;
  return kLargestHalf;  // f16's own, or its scales'
}

}  // namespace tyto
