// Compiled once per instruction set, with TYTO_ISA naming the namespace (see src/CMakeLists.txt).
// Everything here is local to that namespace or always inlined: a template or inline function
// emitted from a wide translation unit could otherwise be the copy the linker keeps for all.
#include <cmath>
#include <cstring>

#include "device/cpu/inner_loops.h"

#define TYTO_INLINE [[gnu::always_inline]] static inline

namespace tyto::cpu::TYTO_ISA {
namespace {

constexpr size_t kLanes = 8;
typedef float Vec __attribute__((vector_size(32)));
typedef _Float16 HalfVec __attribute__((vector_size(16)));
typedef uint16_t ShortVec __attribute__((vector_size(16)));
typedef uint32_t WordVec __attribute__((vector_size(32)));

struct Bf16 {
  uint16_t bits;
};

// Loads go through memcpy: tensor data in a file need not be aligned to its type.
TYTO_INLINE float load1(const float* p) {
  float value;
  std::memcpy(&value, p, sizeof value);
  return value;
}
TYTO_INLINE float load1(const _Float16* p) {
  _Float16 value;
  std::memcpy(&value, p, sizeof value);
  return static_cast<float>(value);
}
TYTO_INLINE float load1(const Bf16* p) {
  uint16_t half;
  std::memcpy(&half, p, sizeof half);
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

TYTO_INLINE void load8(const float* p, Vec& out) {
  std::memcpy(&out, p, sizeof out);
}
TYTO_INLINE void load8(const _Float16* p, Vec& out) {
  HalfVec half;
  std::memcpy(&half, p, sizeof half);
  out = __builtin_convertvector(half, Vec);
}
TYTO_INLINE void load8(const Bf16* p, Vec& out) {
  ShortVec half;
  std::memcpy(&half, p, sizeof half);
  const WordVec words = __builtin_convertvector(half, WordVec) << 16;
  std::memcpy(&out, &words, sizeof out);
}

TYTO_INLINE float sum(const Vec& v) {
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

// y[t][r] = dot(x[t], w[r]) for a register tile of T tokens by R weight rows.
template <int T, int R, typename Weight>
TYTO_INLINE void dot_tile(const MatmulTile& tile, size_t token, size_t row) {
  const size_t stride = tile.weight_stride == 0 ? tile.k : tile.weight_stride;
  const Weight* weights = static_cast<const Weight*>(tile.weights) + row * stride;
  const float* x = tile.x + token * tile.x_stride;
  Vec acc[T][R] = {};
  size_t i = 0;
  for (; i + kLanes <= tile.k; i += kLanes) {
    Vec xv[T];
    for (int t = 0; t < T; ++t) load8(x + t * tile.x_stride + i, xv[t]);
    for (int r = 0; r < R; ++r) {
      Vec wv;
      load8(weights + r * stride + i, wv);
      for (int t = 0; t < T; ++t) acc[t][r] += xv[t] * wv;
    }
  }
  for (int t = 0; t < T; ++t)
    for (int r = 0; r < R; ++r) {
      float total = sum(acc[t][r]);
      for (size_t j = i; j < tile.k; ++j)
        total += x[t * tile.x_stride + j] * load1(weights + r * stride + j);
      tile.y[(token + t) * tile.y_stride + row + r] = total;
    }
}

template <int T, typename Weight>
TYTO_INLINE void dot_rows(const MatmulTile& tile, size_t token) {
  size_t row = 0;
  for (; row + 4 <= tile.rows; row += 4) dot_tile<T, 4, Weight>(tile, token, row);
  for (; row < tile.rows; ++row) dot_tile<T, 1, Weight>(tile, token, row);
}

template <typename Weight>
TYTO_INLINE void matmul_of(const MatmulTile& tile) {
  size_t token = 0;
  for (; token + 3 <= tile.tokens; token += 3) dot_rows<3, Weight>(tile, token);
  for (; token < tile.tokens; ++token) dot_rows<1, Weight>(tile, token);
}

void matmul(const MatmulTile& tile) {
  switch (tile.weight_type) {
    case DType::f32:
      return matmul_of<float>(tile);
    case DType::f16:
      return matmul_of<_Float16>(tile);
    case DType::bf16:
      return matmul_of<Bf16>(tile);
    default:
      return;  // other types are widened by the caller
  }
}

template <typename Value>
TYTO_INLINE void widen_of(const void* in, float* out, size_t count) {
  const Value* values = static_cast<const Value*>(in);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    Vec v;
    load8(values + i, v);
    std::memcpy(out + i, &v, sizeof v);
  }
  for (; i < count; ++i) out[i] = load1(values + i);
}

void widen(DType type, const void* in, float* out, size_t count) {
  switch (type) {
    case DType::f32:
      return widen_of<float>(in, out, count);
    case DType::f16:
      return widen_of<_Float16>(in, out, count);
    case DType::bf16:
      return widen_of<Bf16>(in, out, count);
    default:
      return;
  }
}

void narrow(DType type, const float* in, void* out, size_t count) {
  if (type == DType::f32) {
    std::memcpy(out, in, count * sizeof(float));
    return;
  }
  _Float16* values = static_cast<_Float16*>(out);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<_Float16>(in[i]);
}

TYTO_INLINE float dot(const float* a, const float* b, size_t count) {
  Vec acc = {};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    Vec av, bv;
    load8(a + i, av);
    load8(b + i, bv);
    acc += av * bv;
  }
  float total = sum(acc);
  for (; i < count; ++i) total += a[i] * b[i];
  return total;
}

// Scores become weights that add to one.
TYTO_INLINE void softmax(float* scores, size_t count) {
  float largest = scores[0];
  for (size_t i = 1; i < count; ++i) largest = scores[i] > largest ? scores[i] : largest;
  float total = 0;
  for (size_t i = 0; i < count; ++i) {
    scores[i] = std::exp(scores[i] - largest);
    total += scores[i];
  }
  const float scale = 1.0f / total;
  for (size_t i = 0; i < count; ++i) scores[i] *= scale;
}

template <typename Value>
TYTO_INLINE void attend_of(const AttentionHead& head) {
  const Value* k = static_cast<const Value*>(head.k);
  const Value* v = static_cast<const Value*>(head.v);
  const float scale = 1.0f / std::sqrt(static_cast<float>(head.head_dim));
  float row[kMaxHeadDim];
  for (size_t p = 0; p < head.positions; ++p) {
    widen_of<Value>(k + p * head.head_dim, row, head.head_dim);
    for (size_t g = 0; g < head.group; ++g)
      head.scores[g * head.positions + p] =
          scale * dot(head.q + g * head.head_dim, row, head.head_dim);
  }
  for (size_t g = 0; g < head.group; ++g) softmax(head.scores + g * head.positions, head.positions);
  std::memset(head.y, 0, head.group * head.head_dim * sizeof(float));
  for (size_t p = 0; p < head.positions; ++p) {
    widen_of<Value>(v + p * head.head_dim, row, head.head_dim);
    for (size_t g = 0; g < head.group; ++g) {
      const float weight = head.scores[g * head.positions + p];
      float* y = head.y + g * head.head_dim;
      for (size_t i = 0; i < head.head_dim; ++i) y[i] += weight * row[i];
    }
  }
}

void attend(const AttentionHead& head) {
  if (head.kv_type == DType::f32)
    attend_of<float>(head);
  else
    attend_of<_Float16>(head);
}

void rmsnorm(const float* x, const float* weight, float* y, size_t count, float eps) {
  const float mean_square = dot(x, x, count) / static_cast<float>(count);
  const float scale = 1.0f / std::sqrt(mean_square + eps);
  for (size_t i = 0; i < count; ++i) y[i] = x[i] * scale * weight[i];
}

void swiglu(const float* gate, const float* up, float* y, size_t count) {
  for (size_t i = 0; i < count; ++i) y[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
}

void add(float* x, const float* y, size_t count) {
  for (size_t i = 0; i < count; ++i) x[i] += y[i];
}

constexpr InnerLoops kLoops = {TYTO_ISA_NAME, matmul, attend, widen, narrow, rmsnorm, swiglu, add};

}  // namespace

const InnerLoops& inner_loops() {
  return kLoops;
}

}  // namespace tyto::cpu::TYTO_ISA
