// Matrices times activations: the routes from a weight's type to its kernel, and how the rows are
// shared among the threads.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "base/thread_pool.h"
#include "device/cpu/inner_loops.h"

namespace tyto::cpu {

// y = x * weights^T (+ bias), all tokens of a call.
struct MatmulTarget {
  DType type = DType::f32;
  size_t rows = 0;
  const std::byte* weights = nullptr;    // [rows, k] as the file has them
  uint64_t row_stride = 0;               // bytes from row to row of them
  const PackedMatrix* packed = nullptr;  // the same packed, where it has been
  const float* bias = nullptr;           // [rows]
  float* y = nullptr;                    // [tokens, rows]
};

// What is done with a row of results as soon as it is there, by the thread that made it.
enum class Epilogue : uint8_t {
  none,
  add,     // other += y
  swiglu,  // of two targets: other = activation(first y) * second y
};

// Several matrices times the same activations, in one parallel loop.
struct MatmulGroup {
  const float* x;  // [tokens, k]
  size_t tokens;
  size_t k;
  std::span<const MatmulTarget> targets;
  bool in_blocks = false;  // operands are rounded to bfp16 first; none of them is packed
  Epilogue epilogue = Epilogue::none;
  float* other = nullptr;  // [tokens, rows]
  Activation activation = Activation::silu;
};

void multiply(const MatmulGroup& group, ThreadPool& pool, const InnerLoops& loops);

}  // namespace tyto::cpu
