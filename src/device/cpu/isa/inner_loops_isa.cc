// Loops over one row of values, and the table of everything. Compiled once per instruction set,
// with TYTO_ISA naming the namespace (see src/CMakeLists.txt).
#include "device/cpu/inner_loops.h"

#include <cmath>
#include <cstring>

#include "device/cpu/isa/simd.h"

namespace tyto::cpu::TYTO_ISA {

// Reading rows of f32, f16 and bf16 values.

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

namespace {

void widen(DType type, const void* in, float* out, size_t count) {
  if (type == DType::f32)
    widen_of<float>(in, out, count);
  else if (type == DType::f16)
    widen_of<_Float16>(in, out, count);
  else if (type == DType::bf16)
    widen_of<Bf16>(in, out, count);
}

// Blocks of 34 bytes: an f16 scale, 32 codes. A NaN or an infinity makes the whole block NaN.
TYTO_INLINE void narrow_q8_0(const float* in, uint8_t* out, size_t count) {
  for (size_t block = 0; block < count; block += 32, out += 34) {
    const float* x = in + block;
    float most = 0, poison = 0;
    for (size_t i = 0; i < 32; ++i) {
      most = std::fabs(x[i]) > most ? std::fabs(x[i]) : most;
      poison += 0.0f * x[i];
    }
    const float factor = most > 0 ? 127.0f / most : 0.0f;
    const _Float16 scale = static_cast<_Float16>(most / 127.0f + poison);
    std::memcpy(out, &scale, sizeof scale);
    for (size_t i = 0; i < 32; ++i)
      out[2 + i] = static_cast<uint8_t>(static_cast<int8_t>(
          poison == 0 ? static_cast<int32_t>(std::nearbyint(x[i] * factor)) : 1));
  }
}

// As f32_to_bf16 does, which is not included: a copy of it for this instruction set could become
// the one that all others call.
TYTO_INLINE void narrow_bf16(const float* in, uint16_t* out, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, in + i, sizeof bits);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const uint32_t quiet = (bits >> 16) | 0x40u;
    out[i] = static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
  }
}

void narrow(DType type, const float* in, void* out, size_t count) {
  if (type == DType::q8_0) return narrow_q8_0(in, static_cast<uint8_t*>(out), count);
  if (type == DType::f32) {
    std::memcpy(out, in, count * sizeof(float));
    return;
  }
  if (type == DType::bf16) {
    return narrow_bf16(in, static_cast<uint16_t*>(out), count);
  }
  _Float16* values = static_cast<_Float16*>(out);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store_f16(values + i, load(in + i));
  for (; i < count; ++i) values[i] = static_cast<_Float16>(in[i]);
}

// Four partial sums, so that one addition need not wait for the last.
TYTO_INLINE float sum_of_squares(const float* x, size_t count) {
  Vec acc[4] = {zero(), zero(), zero(), zero()};
  size_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes)
    for (size_t v = 0; v < 4; ++v) {
      const Vec value = load(x + i + v * kLanes);
      acc[v] = fma(value, value, acc[v]);
    }
  float total = sum(add(add(acc[0], acc[1]), add(acc[2], acc[3])));
  for (; i < count; ++i) total += x[i] * x[i];
  return total;
}

void rmsnorm(const float* x, const float* weight, float* y, size_t count, float eps) {
  const float mean_square = sum_of_squares(x, count) / static_cast<float>(count);
  const float scale = 1.0f / std::sqrt(mean_square + eps);
  for (size_t i = 0; i < count; ++i) y[i] = x[i] * scale * weight[i];
}

// gate / (1 + exp(-of)) * up
TYTO_INLINE Vec gated(Vec gate, Vec of, Vec up) {
  return mul(div(gate, add(broadcast(1.0f), exp(sub(zero(), of)))), up);
}
struct Silu {
  TYTO_INLINE Vec of(Vec gate, Vec up) { return gated(gate, gate, up); }
};
// gate / 2 * (1 + tanh(u)) with u = sqrt(2 / pi) * (gate + 0.044715 gate^3), which is
// gate / (1 + exp(-2u)).
struct GeluTanh {
  TYTO_INLINE Vec of(Vec gate, Vec up) {
    const Vec cubic = fma(mul(gate, gate), broadcast(0.0713548163f), broadcast(1.59576912f));
    return gated(gate, mul(gate, cubic), up);
  }
};

// The bounds come first, so that a NaN stays one.
struct SwigluOai {
  TYTO_INLINE Vec of(Vec gate, Vec up) {
    const Vec most = broadcast(7.0f), bounded = min(most, gate);
    const Vec factor = add(max(broadcast(-7.0f), min(most, up)), broadcast(1.0f));
    return gated(bounded, mul(bounded, broadcast(1.702f)), factor);
  }
};

struct Sigmoid {
  TYTO_INLINE Vec of(Vec gate, Vec up) { return gated(broadcast(1.0f), gate, up); }
};

struct Product {
  TYTO_INLINE Vec of(Vec gate, Vec up) { return mul(gate, up); }
};

// A product with 0 or 1 would make an infinity a NaN; max() takes its second where one is a NaN.
struct Relu {
  TYTO_INLINE Vec of(Vec gate, Vec up) { return mul(max(zero(), gate), up); }
};

template <typename Gate>
TYTO_INLINE void swiglu_of(const float* gate, const float* up, float* y, size_t count) {
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(y + i, Gate::of(load(gate + i), load(up + i)));
  if (i == count) return;
  float last[3][kLanes] = {};  // the same arithmetic for the rest: cuts must not change results
  std::memcpy(last[0], gate + i, (count - i) * sizeof(float));
  std::memcpy(last[1], up + i, (count - i) * sizeof(float));
  store(last[2], Gate::of(load(last[0]), load(last[1])));
  std::memcpy(y + i, last[2], (count - i) * sizeof(float));
}

void swiglu(Activation activation, const float* gate, const float* up, float* y, size_t count) {
  switch (activation) {
    case Activation::silu:
      return swiglu_of<Silu>(gate, up, y, count);
    case Activation::gelu_tanh:
      return swiglu_of<GeluTanh>(gate, up, y, count);
    case Activation::swiglu_oai:
      return swiglu_of<SwigluOai>(gate, up, y, count);
    case Activation::sigmoid:
      return swiglu_of<Sigmoid>(gate, up, y, count);
    case Activation::none:
      return swiglu_of<Product>(gate, up, y, count);
    case Activation::relu:
      return swiglu_of<Relu>(gate, up, y, count);
  }
}

void soft_cap(const float* x, float cap, float* y, size_t count) {
  const Vec most = broadcast(cap), inverse = broadcast(1.0f / cap);
  const auto capped = [&](Vec value) __attribute__((always_inline)) {
    return mul(most, tanh(mul(value, inverse)));
  };
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(y + i, capped(load(x + i)));
  if (i == count) return;
  float last[kLanes] = {};
  std::memcpy(last, x + i, (count - i) * sizeof(float));
  store(last, capped(load(last)));
  std::memcpy(y + i, last, (count - i) * sizeof(float));
}

void add_to(float* x, const float* y, size_t count) {
  for (size_t i = 0; i < count; ++i) x[i] += y[i];
}

void rotate(float* head, const float* cosines, const float* sines, size_t half, bool pairs) {
  if (pairs) {
    for (size_t i = 0; i < half; ++i) {
      const float first = head[2 * i], second = head[2 * i + 1];
      head[2 * i] = first * cosines[i] - second * sines[i];
      head[2 * i + 1] = second * cosines[i] + first * sines[i];
    }
    return;
  }
  float* __restrict low = head;
  float* __restrict high = head + half;
  for (size_t i = 0; i < half; ++i) {
    const float first = low[i], second = high[i];
    low[i] = first * cosines[i] - second * sines[i];
    high[i] = second * cosines[i] + first * sines[i];
  }
}

// The compiler makes multiply-adds of 16-bit pairs of it.
int32_t dot_i8(const int8_t* x, const int8_t* y, size_t count) {
  int32_t sum = 0;
  for (size_t i = 0; i < count; ++i) sum += int32_t{x[i]} * y[i];
  return sum;
}

}  // namespace

const InnerLoops& inner_loops() {
  static const InnerLoops loops = {.name = TYTO_ISA_NAME,
                                   .matmul = matmul,
                                   .widen = widen,
                                   .narrow = narrow,
                                   .rmsnorm = rmsnorm,
                                   .swiglu = swiglu,
                                   .soft_cap = soft_cap,
                                   .add = add_to,
                                   .rotate = rotate,
                                   .dot_i8 = dot_i8,
                                   .attention = &attention_loops(),
                                   .recurrent = &recurrent_loops(),
                                   .floats = &float_loops(),
                                   .packed = packed_loops(),
                                   .packed_floats = packed_float_loops(),
                                   .peak = &peak_loops()};
  return loops;
}

// Products of values as they lie, one output after the other. Compiled once per
// instruction set (see src/CMakeLists.txt).

namespace {

// y[t][r] = dot(x[t], w[r]) for R weight rows.
template <int R, typename Weight>
TYTO_INLINE void dot_rows(const MatmulTile& tile, size_t token, size_t row) {
  const size_t stride = tile.weight_stride == 0 ? tile.k : tile.weight_stride;
  const Weight* weights = static_cast<const Weight*>(tile.weights) + row * stride;
  const float* x = tile.x + token * tile.x_stride;
  Vec acc[R];
  for (int r = 0; r < R; ++r) acc[r] = zero();
  size_t i = 0;
  for (; i + kLanes <= tile.k; i += kLanes) {
    const Vec values = load(x + i);
    for (int r = 0; r < R; ++r) acc[r] = fma(values, load_many(weights + r * stride + i), acc[r]);
  }
  for (int r = 0; r < R; ++r) {
    float total = sum(acc[r]);
    for (size_t j = i; j < tile.k; ++j) total += x[j] * load_one(weights + r * stride + j);
    tile.y[token * tile.y_stride + row + r] = total;
  }
}

template <typename Weight>
TYTO_INLINE void matmul_of(const MatmulTile& tile) {
  for (size_t token = 0; token < tile.tokens; ++token) {
    size_t row = 0;
    for (; row + 4 <= tile.rows; row += 4) dot_rows<4, Weight>(tile, token, row);
    for (; row < tile.rows; ++row) dot_rows<1, Weight>(tile, token, row);
  }
}

}  // namespace

void matmul(const MatmulTile& tile) {
  // The caller widens other types.
  if (tile.weight_type == DType::f32)
    matmul_of<float>(tile);
  else if (tile.weight_type == DType::f16)
    matmul_of<_Float16>(tile);
  else if (tile.weight_type == DType::bf16)
    matmul_of<Bf16>(tile);
}

}  // namespace tyto::cpu::TYTO_ISA
