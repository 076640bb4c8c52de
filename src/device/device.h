// The one seam: what a device implements, and what the engine may ask of it.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/thread_pool.h"
#include "program/program.h"
#include "program/stitch.h"
#include "tensor/view.h"
#include "trace/trace.h"

namespace tyto {

struct DeviceInfo {
  std::string name;                // as in --device
  std::string description;         // the hardware, and what drives it
  bool is_virtual = false;         // its time is modelled; never satisfies --require
  DType activations = DType::f32;  // what its kernels read and write between launches
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

// What a device is opened with; pool and trace outlive it.
struct DeviceEnv {
  ThreadPool& pool;
  Trace& trace;
  Fusion fusion = Fusion::block;  // an NPU's kernel sets differ by it
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
