// What this machine can do at best, measured in this process with the threads and the instruction
// set that the kernels use.
#pragma once

#include "base/thread_pool.h"
#include "device/cpu/inner_loops.h"

namespace tyto::cpu {

struct MeasuredPeak {
  double read_gb_per_s = 0;     // best pass over more memory than a core's caches hold
  double fma_gflop_per_s = 0;   // f32
  double bf16_gflop_per_s = 0;  // 0: no instruction for it
  double int8_gop_per_s = 0;    // 0: no kernels for it
};

// Takes about a second.
MeasuredPeak measure_peak(const InnerLoops& loops, ThreadPool& pool);

// What matrices of a type are multiplied in by these kernels, and the most of it there is.
struct ArithmeticPeak {
  const char* name;  // "int8", "bf16", "f32"
  double gflop_per_s;
};
ArithmeticPeak arithmetic_peak(const MeasuredPeak& peak, const InnerLoops& loops, DType weights);

}  // namespace tyto::cpu
