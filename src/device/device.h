// The one seam: what a device implements, and what the engine may ask of it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "program/program.h"
#include "program/stitch.h"
#include "tensor/view.h"
#include "trace/plausibility.h"
#include "trace/trace.h"

namespace tyto {

// How the KV cache lies in memory: [kv_heads / group][positions][group][head_dim].
struct KvForm {
  DType type = DType::f16;
  uint32_t group = 1;
};

struct DeviceInfo {
  std::string name;                 // as in --device
  std::string description;          // the hardware, and what drives it
  bool is_virtual = false;          // its time is modelled; never satisfies --require
  bool shares_host_memory = false;  // sync moves nothing
  DType activations = DType::f32;   // what its kernels read and write between launches
  bool rounds_to_bf16 = false;      // activations, where they meet bf16 weights
  DeviceLimits limits = {};         // what no run on it can exceed
  // Of devices whose kernels are compiled for fixed shapes; 0 and none: as the pipeline likes.
  uint32_t prompt_rows = 0;     // rows of a prefill call; one row in every other call
  uint32_t most_positions = 0;  // a KV cache on the device holds
  std::optional<KvForm> kv = {};
};

// Memory a device can reach. Host and device see the same bytes after sync(). Contents given at
// allocation may be shared with their owner (a mapped file), so `writable` is then false.
struct Buffer {
  std::byte* data = nullptr;
  size_t size = 0;
  bool writable = true;
  std::shared_ptr<void> handle = {};  // shared with the Executables it is bound to

  std::span<std::byte> bytes() const { return {data, size}; }
};

enum class Sync : uint8_t { to_device, from_device };

// A loaded program with its bound buffers. Used by one thread.
class Executable {
 public:
  virtual ~Executable() = default;
  virtual void bind(uint16_t slot, const Buffer& buffer) = 0;  // every slot, once
  virtual void submit(const Call& call) = 0;
  virtual void wait(std::chrono::milliseconds timeout) = 0;  // throws on timeout or device error
};

// What a new backend implements.
class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceInfo info() const = 0;
  // Nothing when the launch can run here, else the reason, fit for a person to read.
  virtual std::optional<std::string> why_not(const Program& program,
                                             const Launch& launch) const = 0;
  // Zeroed memory for a slot, or memory that holds `contents` (a weight), which must outlive it:
  // the device may refer to it in place, copy it, or repack it for its kernels.
  virtual Buffer alloc(const Slot& slot, const TensorView* contents = nullptr) = 0;
  virtual void sync(const Buffer& buffer, Sync direction, size_t offset, size_t bytes) = 0;
  virtual std::unique_ptr<Executable> load(const Program& program) = 0;
};

enum class NpuWeights : uint8_t { bf16, int8, q4nx };

// The model an NPU's kernels must have been compiled for.
struct ModelDims {
  uint32_t layers = 0, emb = 0, heads = 0, kv_heads = 0, head_dim = 0, hidden = 0, vocab = 0;
  uint32_t context = 0;  // positions wanted
  float norm_eps = 0;
};

struct NpuSettings {
  NpuWeights weights = NpuWeights::bf16;
  uint32_t prompt_rows = 2048;    // what prefill kernels are compiled for
  std::string machine = "strix";  // whose time a virtual NPU models
  std::string fault;              // that a virtual NPU is to have; empty: none
  bool block_float = false;       // a virtual NPU's GEMMs round their operands to bfp16
  // K of a virtual NPU's int8 GEMMs; none: the lengths that the model has.
  std::vector<uint64_t> gemm_lengths = {};
};

// What a device is opened with; pool and trace outlive it.
struct DeviceEnv {
  ThreadPool& pool;
  Trace& trace;
  Fusion fusion = Fusion::block;  // an NPU's kernel sets differ by it
  ModelDims model = {};
  NpuSettings npu = {};
  std::string isa = {};  // instruction set of the CPU's kernels; empty: the best it has
};

struct DeviceEntry {
  std::string_view name;
  std::string_view summary;
  std::unique_ptr<Device> (*open)(const DeviceEnv& env);  // throws a device Error when it cannot
};

std::span<const DeviceEntry> device_table();

// Opens by name; an unknown name is a usage Error that lists the table.
std::unique_ptr<Device> open_device(std::string_view name, const DeviceEnv& env);

}  // namespace tyto
