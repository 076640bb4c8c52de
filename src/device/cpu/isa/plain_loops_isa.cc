// Products of values as they lie, one output after the other. Compiled once per
// instruction set (see src/CMakeLists.txt).
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
