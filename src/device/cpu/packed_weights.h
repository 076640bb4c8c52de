// Block-quantised matrices repacked for the CPU's kernels, once, when they are bound.
#pragma once

#include <map>
#include <memory>
#include <mutex>

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

// The codes and scales of `view`, unchanged, in another order; padded rows decode to zero.
PackedWeights pack_weights(const TensorView& view, ThreadPool& pool);

// Packs each matrix once for all programs that use it. Entries live as long as somebody holds them.
class PackedStore {
 public:
  std::shared_ptr<const PackedWeights> pack(const TensorView& view, ThreadPool& pool);

 private:
  std::map<const std::byte*, std::weak_ptr<const PackedWeights>> by_address_;
};

}  // namespace tyto::cpu
