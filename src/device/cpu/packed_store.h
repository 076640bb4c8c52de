// Each packed matrix once for all programs that use it, from the cache or packed now.
#pragma once

#include <map>
#include <memory>
#include <span>

#include "base/file.h"
#include "base/thread_pool.h"
#include "device/cpu/packed_weights.h"
#include "device/cpu/weight_cache.h"
#include "trace/trace.h"

namespace tyto::cpu {

// Entries live as long as somebody holds them.
class PackedStore {
 public:
  // Matrices that lie in `sources` are looked for in the cache of packed weights first.
  PackedStore(std::span<const MappedFile> sources, Trace& trace) : kept_(sources, trace) {}

  std::shared_ptr<const PackedWeights> pack(const TensorView& view, ThreadPool& pool);

 private:
  KeptWeights kept_;
  std::map<const std::byte*, std::weak_ptr<const PackedWeights>> by_address_;
};

}  // namespace tyto::cpu
