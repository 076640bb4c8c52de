// The processor's rows of a plan: from a short run of the model here, or, where there are no
// weights to run, from what this machine's memory and arithmetic allow.
#pragma once

#include <cstdint>

#include "plan/what_if.h"

namespace tyto {

inline const std::string kThisMachine = "this machine";  // in their rows

// What was run of the model to know its speed.
struct CpuRun {
  unsigned threads = 0;
  uint32_t prompt_tokens = 0, generated_tokens = 0;
  double prefill_seconds = 0, decode_seconds = 0;  // more than 0
};
// The request has a file. A prompt longer than what was run is reckoned from its speed.
PlanRow measured_on_cpu(const PlanRequest& request, const CpuRun& run);

// What was measured of the machine.
struct CpuPeak {
  unsigned threads = 0;
  double read_gb_s = 0, gflops = 0;  // arithmetic as matrices of the type are multiplied in
};
// With weights of a type: no run can be faster than this.
PlanRow estimated_on_cpu(const PlanRequest& request, DType weights, const CpuPeak& peak);

}  // namespace tyto
