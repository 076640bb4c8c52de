// Reading rows of f32, f16 and bf16 values.
#pragma once

#include <cstring>

#include "device/cpu/isa/simd.h"

#ifdef TYTO_ISA
namespace tyto::cpu::TYTO_ISA {

struct Bf16 {
  uint16_t bits;
};

// Loads go through memcpy: tensor data in a file need not be aligned to its type.
TYTO_INLINE float load_one(const float* p) {
  float value;
  std::memcpy(&value, p, sizeof value);
  return value;
}
TYTO_INLINE float load_one(const _Float16* p) {
  _Float16 value;
  std::memcpy(&value, p, sizeof value);
  return static_cast<float>(value);
}
TYTO_INLINE float load_one(const Bf16* p) {
  uint16_t half;
  std::memcpy(&half, p, sizeof half);
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
TYTO_INLINE Vec load_many(const float* p) {
  return load(p);
}
TYTO_INLINE Vec load_many(const _Float16* p) {
  return load_f16(p);
}
TYTO_INLINE Vec load_many(const Bf16* p) {
  return load_bf16(p);
}

template <typename Value>
TYTO_INLINE void widen_of(const void* in, float* out, size_t count) {
  const Value* values = static_cast<const Value*>(in);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(out + i, load_many(values + i));
  for (; i < count; ++i) out[i] = load_one(values + i);
}

}  // namespace tyto::cpu::TYTO_ISA
#endif
