// What all programs on one GPU share: its memory and pipelines.
#pragma once

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "device/device.h"
#include "device/vulkan/context.h"
#include "device/vulkan/kernel_shapes.h"
#include "tensor/dtype.h"

namespace tyto::vulkan {

// Memory of a GPU, and bytes that go there and back.

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

// Compute pipelines, made when a form of call first needs them and kept for all programs; compiled
// kernels are kept on disk between runs.

// A kernel and the specialization constants 0, 1, 2, ... it is compiled with.
struct PipelineKey {
  std::string shader;
  std::vector<uint32_t> constants;
  auto operator<=>(const PipelineKey&) const = default;
};

class Pipelines {
 public:
  // `file` keeps what the driver compiled; empty: nothing is kept.
  Pipelines(std::shared_ptr<Context> context, std::filesystem::path file);
  ~Pipelines();
  Pipelines(const Pipelines&) = delete;
  Pipelines& operator=(const Pipelines&) = delete;

  VkPipeline get(const PipelineKey& key);
  // Whether this build has the kernel at all.
  static bool has(const std::string& shader);
  // Writes the file if something was compiled since. What cannot be written is compiled again next
  // time, so that is no error.
  void save();

 private:
  VkShaderModule module(const std::string& shader);

  std::shared_ptr<Context> context_;
  std::filesystem::path file_;
  VkPipelineCache cache_ = VK_NULL_HANDLE;
  std::map<std::string, VkShaderModule> modules_;
  std::map<PipelineKey, VkPipeline> pipelines_;
  bool has_new_ = false;
};

// The kernels' SPIR-V, compiled from shaders/*.comp when Tyto is built.

struct Shader {
  std::string_view name;  // file, and variant where there are several: "gemv_q4_0"
  std::span<const uint32_t> words;
};

std::span<const Shader> shaders();

struct Gpu {
  Gpu(const std::string& wanted, const std::filesystem::path& pipeline_file);
  ~Gpu();

  std::shared_ptr<Context> context;
  Transfers transfers;
  Pipelines pipelines;
  WeightStore weights;
};

// A slot's memory, behind Buffer::handle.
struct SlotMemory {
  std::shared_ptr<Gpu> gpu;  // shared with the device and its executables
  Memory memory;             // what kernels use
  // Where the host looks, if it cannot see that: a buffer that recorded copies end in, or plain
  // memory that is committed as it is touched.
  std::unique_ptr<Memory> mirror = {};
  std::shared_ptr<void> shadow = {};
};

Buffer new_slot_buffer(const std::shared_ptr<Gpu>& gpu, const Slot& slot);
SlotMemory& slot_memory(const Buffer& buffer);
void sync_slot(const Buffer& buffer, Sync direction, size_t offset, size_t bytes);

}  // namespace tyto::vulkan
