// One function per kernel of program/kernels.h, on host memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "device/cpu/inner_loops.h"
#include "device/cpu/matmul.h"
#include "program/kernels.h"
#include "program/program.h"

namespace tyto::cpu {

// What a matrix product does to its operands before it adds up in f32.

enum class Numerics : uint8_t {
  bf16,   // nothing: operands as they are stored
  bfp16,  // products of more than one row take both operands as bfp16ebs8, as the array's GEMMs do
  // The same, and in attention of one row the values of eight positions of a cache that is not f32
  // in one piece have an exponent together, whether or not the row attends to all of them: the
  // single-dispatch decode.
  bfp16_cache,
};

constexpr size_t kBfp16Block = 8;

// Eight values, fewer at the end, with one exponent and signed 8-bit mantissas.
void round_to_bfp16(float* values, size_t count);
// Rows of an operand, each in blocks of its own.
std::vector<float> in_blocks(const float* values, size_t rows, size_t width, ThreadPool& pool);

struct Operand {
  std::byte* data = nullptr;
  DType dtype = DType::f32;
  uint64_t rows = 0;
  uint64_t cols = 0;
};

// Everything one launch needs. All but ids, matrices, integers and f16 or q8_0 caches is f32: the
// interpreter sees to it.
struct Operation {
  Kernel kernel;
  LaunchShape shape;
  Call call;
  ThreadPool& pool;
  const InnerLoops& loops;
  Numerics numerics = Numerics::bf16;
  size_t arg_count = 0;
  std::array<Operand, kMostArgs> args = {};
  uint64_t matrix_stride = 0;            // bytes from row to row of argument 1, if a matrix
  const PackedMatrix* packed = nullptr;  // a product's weight, where it has been repacked
  size_t* experts_read = nullptr;        // expert_matmul tells here how many it read

  template <typename T = float>
  T* data(size_t arg) const {
    return reinterpret_cast<T*>(args[arg].data);
  }
};

void run(const Operation& operation);

// Whether operands of products are rounded to blocks first. One row is a GEMV, whose kernels do
// not.
bool takes_blocks(const Operation& op);

MatmulTarget matmul_target(const Operation& matmul);
// The group of one expert_matmul or of several with the same x and ids; without what they end in.
ExpertGroup expert_group(const Operation& expert_matmul);
MatmulTarget expert_target(const Operation& expert_matmul);

// The plain definition of Kernel::top_k.

// `row` is laid out as TopKRow says; it has no more pairs than there are logits.
void pick_best(std::span<const float> logits, std::span<int32_t> row);

}  // namespace tyto::cpu
