// Products and attention on values as they lie, one output after the other. Compiled once per
// instruction set (see src/CMakeLists.txt).
#include <cmath>
#include <cstring>

#include "device/cpu/inner_loops.h"
#include "device/cpu/isa/row_values.h"

namespace tyto::cpu::TYTO_ISA {
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

TYTO_INLINE float dot(const float* a, const float* b, size_t count) {
  Vec acc = zero();
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) acc = fma(load(a + i), load(b + i), acc);
  float total = sum(acc);
  for (; i < count; ++i) total += a[i] * b[i];
  return total;
}

// Scores become weights that add to one.
TYTO_INLINE void softmax(float* scores, size_t count) {
  float most = scores[0];
  for (size_t i = 1; i < count; ++i) most = scores[i] > most ? scores[i] : most;
  float total = 0;
  for (size_t i = 0; i < count; ++i) {
    scores[i] = std::exp(scores[i] - most);
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

}  // namespace

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

void attend(const AttentionHead& head) {
  if (head.kv_type == DType::f32)
    attend_of<float>(head);
  else
    attend_of<_Float16>(head);
}

}  // namespace tyto::cpu::TYTO_ISA
