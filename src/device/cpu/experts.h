// Products with the matrices of the experts that each row of a call takes: which rows meet which
// expert, and how that is shared among the threads. Experts that no row takes are not read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "device/cpu/inner_loops.h"
#include "device/cpu/matmul.h"

namespace tyto::cpu {

struct ExpertGroup {
  const float* x = nullptr;  // [tokens, k], or with a row for each choice [tokens, used, k]
  bool x_of_choice = false;
  size_t tokens = 0;
  size_t k = 0;
  const int32_t* ids = nullptr;  // [tokens, used]: the choices
  size_t used = 0;
  size_t experts = 0;
  // Weights and packed form of all experts, one's after the other's; `rows` of one of them; bias
  // [experts, rows], y [tokens, used, rows].
  std::span<const MatmulTarget> targets;
  float* gated = nullptr;  // two targets': [tokens, used, rows], first y gating second y
  Activation activation = Activation::silu;
  const float* weights = nullptr;  // [tokens, used], of one target; with
  float* mixed = nullptr;          // [tokens, rows], the sum of weights * y
};

// Returns how many different experts were read. The row of an id that is no expert's is NaN.
size_t multiply_experts(const ExpertGroup& group, ThreadPool& pool, const InnerLoops& loops);

// out = the sum of weights[i] * x[i], in order; rows of x are `stride` apart.
void mix_rows(const float* x, size_t stride, const float* weights, size_t used, size_t width,
              float* out);

// The best `used` of a row of scores, in ascending order, and their softmax, which is over them
// alone or over all.
void choose_experts(std::span<const float> scores, size_t used, bool weighs_chosen_alone,
                    int32_t* ids, float* weights);

}  // namespace tyto::cpu
