// Memory of a GPU, and bytes that go there and back.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <tuple>

#include "device/vulkan/context.h"
#include "device/vulkan/kernel_shapes.h"
#include "tensor/dtype.h"

namespace tyto::vulkan {

enum class MemoryKind : uint8_t {
  gpu,         // the GPU's own; mapped where that is the host's memory, too
  host_write,  // small, and read by every call: the GPU's own if the host can write there
  host_read,   // what the host reads
};

// One buffer with its own memory. Kernels know it by its address.
struct Memory {
  Memory(std::shared_ptr<Context> in, uint64_t bytes, MemoryKind kind);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::shared_ptr<Context> context;  // shared with everything that was allocated in it
  VkBuffer buffer = VK_NULL_HANDLE;
  VkDeviceMemory memory = VK_NULL_HANDLE;
  uint64_t size = 0;
  uint64_t address = 0;
  std::byte* mapped = nullptr;  // null: the host cannot see it
};

// Bytes between the host and memory that it cannot see, through a ring of mapped buffers, so that
// the next bytes are written while the last ones travel. Each wait has a timeout.
class Transfers {
 public:
  explicit Transfers(std::shared_ptr<Context> context);
  ~Transfers();
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  // `fill(bytes)` writes what goes to `at`; at most piece_bytes() at a time.
  void upload(Memory& to, uint64_t at, uint64_t bytes,
              const std::function<void(std::span<std::byte>)>& fill);
  void upload(Memory& to, uint64_t at, std::span<const std::byte> bytes);
  void download(const Memory& from, uint64_t at, std::span<std::byte> to);
  void zero(Memory& memory);
  // Until everything has arrived.
  void finish();
  static constexpr uint64_t piece_bytes() { return uint64_t{16} << 20; }
  // Submissions so far: what these cost the queue is no secret.
  uint64_t submissions() const { return submissions_; }

 private:
  struct Slot {
    std::unique_ptr<Memory> staging;
    VkCommandBuffer commands = VK_NULL_HANDLE;
    VkFence fence = VK_NULL_HANDLE;
    bool is_busy = false;
  };
  Slot& next_slot();
  void wait(Slot& slot);
  void copy(Slot& slot, const Memory& from, uint64_t from_at, const Memory& to, uint64_t to_at,
            uint64_t bytes);

  std::shared_ptr<Context> context_;
  Slot slots_[2];
  size_t next_ = 0;
  uint64_t submissions_ = 0;
};

// Weights in the GPU's memory: each once, for all programs that use it.

class WeightStore {
 public:
  WeightStore(std::shared_ptr<Context> context, Transfers& transfers)
      : context_(std::move(context)), transfers_(transfers) {}

  // In the form that kernels multiply by. Known by where the host has it, which outlives this.
  std::shared_ptr<Memory> matrix(const TensorView& weight, WeightForm form);
  // One row of values, in f32.
  std::shared_ptr<Memory> vector(const TensorView& weight);

 private:
  // Host address, form, is a vector.
  using Key = std::tuple<const std::byte*, WeightForm, bool>;

  std::shared_ptr<Context> context_;
  Transfers& transfers_;
  std::map<Key, std::shared_ptr<Memory>> stored_;  // shared with the executables that use it
};

}  // namespace tyto::vulkan
