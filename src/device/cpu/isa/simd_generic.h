// simd.h for any processor: eight lanes, left to the compiler. Only what the float kernels need.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#ifdef TYTO_ISA
namespace tyto::cpu::TYTO_ISA {

constexpr size_t kLanes = 8;
struct Vec {
  float lane[kLanes];
};

template <typename Function>
TYTO_INLINE Vec each_lane(const Function& function) {
  Vec result;
  for (size_t i = 0; i < kLanes; ++i) result.lane[i] = function(i);
  return result;
}

TYTO_INLINE Vec broadcast(float value) {
  return each_lane([&](size_t) { return value; });
}
TYTO_INLINE Vec zero() {
  return broadcast(0.0f);
}
TYTO_INLINE Vec load(const float* p) {
  Vec result;
  std::memcpy(&result, p, sizeof result);
  return result;
}
TYTO_INLINE void store(float* p, const Vec& v) {
  std::memcpy(p, &v, sizeof v);
}
TYTO_INLINE Vec load_f16(const void* p) {
  _Float16 half[kLanes];
  std::memcpy(half, p, sizeof half);
  return each_lane([&](size_t i) { return static_cast<float>(half[i]); });
}
TYTO_INLINE void store_f16(void* p, const Vec& v) {
  _Float16 half[kLanes];
  for (size_t i = 0; i < kLanes; ++i) half[i] = static_cast<_Float16>(v.lane[i]);
  std::memcpy(p, half, sizeof half);
}
TYTO_INLINE Vec load_bf16(const void* p) {
  uint16_t half[kLanes];
  std::memcpy(half, p, sizeof half);
  Vec result;
  for (size_t i = 0; i < kLanes; ++i) {
    const uint32_t bits = static_cast<uint32_t>(half[i]) << 16;
    std::memcpy(&result.lane[i], &bits, sizeof bits);
  }
  return result;
}
// The 2 kLanes bf16 values at p, apart: even places, odd places.
TYTO_INLINE void load_bf16_pairs(const void* p, Vec& even, Vec& odd) {
  uint32_t both[kLanes];
  std::memcpy(both, p, sizeof both);
  for (size_t i = 0; i < kLanes; ++i) {
    const uint32_t low = both[i] << 16, high = both[i] & 0xffff0000u;
    std::memcpy(&even.lane[i], &low, sizeof low);
    std::memcpy(&odd.lane[i], &high, sizeof high);
  }
}

TYTO_INLINE Vec add(const Vec& a, const Vec& b) {
  return each_lane([&](size_t i) { return a.lane[i] + b.lane[i]; });
}
TYTO_INLINE Vec sub(const Vec& a, const Vec& b) {
  return each_lane([&](size_t i) { return a.lane[i] - b.lane[i]; });
}
TYTO_INLINE Vec mul(const Vec& a, const Vec& b) {
  return each_lane([&](size_t i) { return a.lane[i] * b.lane[i]; });
}
TYTO_INLINE Vec div(const Vec& a, const Vec& b) {
  return each_lane([&](size_t i) { return a.lane[i] / b.lane[i]; });
}
TYTO_INLINE Vec max(const Vec& a, const Vec& b) {
  return each_lane([&](size_t i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
}
TYTO_INLINE Vec min(const Vec& a, const Vec& b) {
  return each_lane([&](size_t i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
}
TYTO_INLINE Vec fma(const Vec& a, const Vec& b, const Vec& c) {
  return each_lane([&](size_t i) { return a.lane[i] * b.lane[i] + c.lane[i]; });
}
TYTO_INLINE Vec round(const Vec& a) {
  return each_lane([&](size_t i) { return std::nearbyint(a.lane[i]); });
}
// a * 2^n for whole n within [-126, 127].
TYTO_INLINE Vec scale_by_power(const Vec& a, const Vec& n) {
  Vec result;
  for (size_t i = 0; i < kLanes; ++i) {
    const uint32_t bits = static_cast<uint32_t>(static_cast<int32_t>(n.lane[i]) + 127) << 23;
    float power;
    std::memcpy(&power, &bits, sizeof power);
    result.lane[i] = a.lane[i] * power;
  }
  return result;
}

TYTO_INLINE float sum(const Vec& v) {
  const float* x = v.lane;
  return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
}
// Lane i: the sum of v[i]'s lanes, all in the same order.
TYTO_INLINE Vec sums_of(const Vec (&v)[kLanes]) {
  return each_lane([&](size_t i) { return sum(v[i]); });
}
// Row i, lane j becomes row j, lane i.
TYTO_INLINE void transpose(Vec (&v)[kLanes]) {
  for (size_t i = 0; i < kLanes; ++i)
    for (size_t j = 0; j < i; ++j) {
      const float value = v[i].lane[j];
      v[i].lane[j] = v[j].lane[i];
      v[j].lane[i] = value;
    }
}
TYTO_INLINE float largest(const Vec& v) {
  float result = v.lane[0];
  for (size_t i = 1; i < kLanes; ++i) result = v.lane[i] > result ? v.lane[i] : result;
  return result;
}

}  // namespace tyto::cpu::TYTO_ISA
#endif
