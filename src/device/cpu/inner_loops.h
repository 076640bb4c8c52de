// The loops where the time goes, compiled once per instruction set and chosen once at start.
// Every variant adds in the same order (eight lanes, then a tail), so results do not depend on how
// many tokens a call carries.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace tyto::cpu {

struct MatmulTile {
  const float* x;  // [tokens, k], rows x_stride apart
  size_t x_stride;
  size_t tokens;
  const void* weights;  // [rows, k] of weight_type: f32, f16 or bf16
  DType weight_type;
  size_t rows;
  size_t k;
  float* y;  // [tokens, rows], rows y_stride apart
  size_t y_stride;
  size_t weight_stride = 0;  // values from row to row of the weights; 0: k
};

// One query token against one KV head: `group` query heads share it.
struct AttentionHead {
  const float* q;  // [group, head_dim]
  const void* k;   // [positions, head_dim] of kv_type: f32 or f16
  const void* v;
  DType kv_type;
  size_t group;
  size_t head_dim;
  size_t positions;
  float* scores;  // [group, positions], scratch
  float* y;       // [group, head_dim]
};

struct InnerLoops {
  const char* name;  // "generic", "avx2", "avx512"
  void (*matmul)(const MatmulTile& tile);
  void (*attend)(const AttentionHead& head);
  void (*widen)(DType type, const void* in, float* out, size_t count);   // f32, f16, bf16
  void (*narrow)(DType type, const float* in, void* out, size_t count);  // f32, f16
  void (*rmsnorm)(const float* x, const float* weight, float* y, size_t count, float eps);
  void (*swiglu)(const float* gate, const float* up, float* y, size_t count);
  void (*add)(float* x, const float* y, size_t count);
};

constexpr size_t kMaxHeadDim = 512;

// The widest variant this processor runs.
const InnerLoops& best_inner_loops();

namespace generic {
const InnerLoops& inner_loops();
}
namespace avx2 {
const InnerLoops& inner_loops();
}
namespace avx512 {
const InnerLoops& inner_loops();
}

}  // namespace tyto::cpu
