// How a product with a few rows is divided among the threads of a GPU (shaders/gemv*.comp).
#pragma once

#include <cstdint>

#include "device/vulkan/weight_form.h"

namespace tyto::vulkan {

struct GemvGpu {
  uint32_t subgroup_size = 32;
  uint32_t shared_bytes = 32 << 10;  // that a workgroup may have
  uint32_t compute_units = 0;        // 0: unknown
  bool multiplies_bytes = false;     // dot products of four bytes (shaderIntegerDotProduct)
};

struct GemvProblem {
  WeightForm form = WeightForm::f16;
  uint32_t rows = 1;      // of x that the kernel takes
  uint64_t k = 0;         // values in each
  uint64_t outputs = 0;   // rows of the results, all matrices together; of pairs, pairs
  bool is_pairs = false;  // swiglu: two rows of weights for each output
};

struct GemvShape {
  bool in_integers = false;  // gemv_dot_*, whose constant 7 is K to the next multiple of 32
  uint32_t threads = 128;    // of a workgroup: constant 0
  uint32_t outputs = 4;      // that a workgroup makes together: constant 2
  // gemv_dot_* makes several groups of outputs in a workgroup if there are fewer workgroups than
  // groups. gemv_* has a workgroup for each.
  uint32_t most_workgroups = UINT32_MAX;
};

GemvShape gemv_shape(const GemvProblem& problem, const GemvGpu& gpu);

}  // namespace tyto::vulkan
