// What a model will take of memory for the NPU: pages that are pinned, known before anything is
// allocated, and the device's heap.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "device/npu/formats/air_models.h"
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

// The heap of a device, one for all contexts of a process, holds the code of its runs. XRT's NPU
// plug-in makes it of one page; since April 2026 xdna-driver lets it grow.
constexpr uint64_t kHeapBytes = uint64_t{64} << 20;
constexpr uint64_t kGrownHeapBytes = uint64_t{512} << 20;
// No compiled image was at hand: the upper end of what the control code of a prefill ELF is
// estimated to be, for images that are not there yet.
constexpr uint64_t kAssumedRunBytes = 1'600'000;

// What a run of an image holds in the heap: its own copy of the control code and of the PDIs that
// it loads.
struct ImageBytes {
  std::string what;  // the program
  uint64_t bytes = 0;
  bool is_estimate = true;  // the size of its file, where the image does not say
};

struct HeapPlan {
  std::vector<ImageBytes> images;
  uint64_t bytes = 0;  // of all; each piece lies at a multiple of 32 KiB
  bool is_estimate = false;
};

// With one run for each image, which is what the runtime holds.
HeapPlan npu_heap(std::span<const ImageBytes> images);

// Throws a device Error with the sum unless the plan fits in `limit`.
void check_heap(const HeapPlan& plan, uint64_t limit, const std::string& device);

}  // namespace tyto
