// Matrices repacked for the CPU's kernels, once, when they are bound.
#pragma once

#include <memory>

#include "base/thread_pool.h"
#include "device/cpu/packed_layout.h"
#include "tensor/view.h"

namespace tyto::cpu {

bool can_pack(DType type);

// Owns its memory (huge pages where the system gives them).
struct PackedWeights {
  PackedMatrix matrix;
  size_t bytes = 0;
  std::shared_ptr<void> memory;
};

// The values of `view`, or their codes and scales, unchanged, in another order; padded rows decode
// to zero.
PackedWeights pack_weights(const TensorView& view, ThreadPool& pool);

}  // namespace tyto::cpu
