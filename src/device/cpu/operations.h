// One function per kernel of program/kernel_spec.h, on host memory.
#pragma once

#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "device/cpu/inner_loops.h"
#include "device/cpu/matmul.h"
#include "device/cpu/numerics.h"
#include "device/device.h"
#include "program/program.h"

namespace tyto::cpu {

// Everything one launch needs. All but ids, matrices, integers and f16 or q8_0 caches is f32: the
// interpreter sees to it.
struct Operation {
  const Program& program;
  const Launch& launch;
  const Call& call;
  const std::vector<Buffer>& buffers;  // [program.slots]
  ThreadPool& pool;
  const InnerLoops& loops;
  uint64_t matrix_stride = 0;            // bytes from row to row of argument 1, if a matrix
  const PackedMatrix* packed = nullptr;  // a matmul's weight, where it has been repacked
  Numerics numerics = Numerics::bf16;

  const Slot& slot(size_t arg) const { return program.slots[launch.args[arg].slot]; }
  template <typename T = float>
  T* data(size_t arg) const {
    return reinterpret_cast<T*>(buffers[launch.args[arg].slot].data);
  }
};

void run(const Operation& operation);

// Whether operands of products are rounded to blocks first. One token is a GEMV, whose kernels do
// not.
bool takes_blocks(const Operation& op);

MatmulTarget matmul_target(const Operation& matmul);

}  // namespace tyto::cpu
