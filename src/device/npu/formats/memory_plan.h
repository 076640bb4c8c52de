// What a model will pin in memory on the NPU, known before anything is allocated.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/npu/formats/air_abi.h"
#include "device/npu/npu_settings.h"

namespace tyto {

struct MemoryItem {
  std::string what;
  uint64_t bytes = 0;
};

// `kv_positions` of a KV cache that is on the NPU, of which each sequence has its own (the largest
// window of the fused decode); 0 where the host keeps them.
std::vector<MemoryItem> npu_memory(const AirDims& dims, NpuWeights weights, Fusion fusion,
                                   uint32_t kv_positions, uint32_t sequences = 1);

uint64_t total_bytes(const std::vector<MemoryItem>& items);

// What this process may pin: RLIMIT_MEMLOCK unless it may ignore it, and never more than the memory
// that is available.
uint64_t pinnable_bytes();

// Throws a device Error with the sum unless `items` fit in `limit`.
void check_memory(const std::vector<MemoryItem>& items, uint64_t limit, const std::string& device);

}  // namespace tyto
