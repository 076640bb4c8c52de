// What a model will take of memory for the NPU: pages that are pinned, known before anything is
// allocated, and the device's heap.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "device/npu/formats/air_models.h"
#include "device/npu/npu_settings.h"
#include "tensor/dtype.h"

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
  uint64_t bytes = 0;  // the sum; each piece lies at a multiple of 32 KiB
  bool is_estimate = false;
};

// With one run for each image, which is what the runtime holds.
HeapPlan npu_heap(std::span<const ImageBytes> images);

// Throws a device Error with the sum unless the plan fits in `limit`.
void check_heap(const HeapPlan& plan, uint64_t limit, const std::string& device);

// Activations head by head, as some of MLIR-AIR's attention kernels want them: `run` columns of
// every row, then the next `run` columns of every row (AirLayout::heads_first).

struct HeadsFirst {
  uint64_t seq = 0;  // rows that the kernel was compiled for
  uint64_t cols = 0;
  uint64_t run = 0;

  uint64_t values() const { return seq * cols; }
};

// The first `rows` rows; those behind them are cleared, as no prompt's values may stay there.
void to_heads_first(const HeadsFirst& form, const uint16_t* by_row, uint64_t rows,
                    uint16_t* by_head, ThreadPool& pool);
void from_heads_first(const HeadsFirst& form, const uint16_t* by_head, uint64_t rows,
                      uint16_t* by_row, ThreadPool& pool);

// Reading weight tensors of any dtype as f32, piece by piece and without allocating, for the
// formats an NPU image wants them in. A value no such format can hold is found here.

// A tensor under the name messages give it.
struct WeightSource {
  std::string name;
  TensorView tensor;
};

// Pieces begin at multiples of this: the longest block of any dtype divides it.
constexpr uint64_t kPieceValues = 256;

// Above this, a range or a rounded bf16 could become infinite. Real weights are near 1.
constexpr float kLargestWeight = 0x1p126f;

// Throws an Error that names the tensor unless it has this shape, a dtype of numbers and as many
// bytes as the two need.
void check_source(const WeightSource& source, uint64_t rows, uint64_t cols);

// Values [first, first + out.size()) of a row; `first` is a multiple of kPieceValues.
void read_piece(const TensorView& tensor, uint64_t row, uint64_t first, std::span<float> out);

// The largest |value|; NaN if there is one.
float largest_magnitude(std::span<const float> values);

// Keeps the lowest of all values that any thread offers.
void keep_lowest(std::atomic<uint64_t>& lowest, uint64_t value);

// Names the first value of a row that is not within kLargestWeight; there must be one.
[[noreturn]] void fail_unusable(const WeightSource& source, uint64_t row);

}  // namespace tyto
