// What the device keeps about one buffer beyond its bytes: weights in the order its arithmetic
// wants them, so that a token does not repack a model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "device/vnpu/images/image.h"

namespace tyto::vxrt {

class DeviceMemory {
 public:
  // Bytes [begin, end) of the buffer may have changed: synced, or written by a launch.
  void touch(uint64_t begin, uint64_t end);

  // The slot's rows one after the other. `data` is where the argument begins, `offset` how far that
  // is from the begin of the buffer. Only the device's thread calls it; what it returns lasts until
  // it is called for the same place again.
  std::byte* weights(const Slot& slot, const SlotPlace& place, const std::byte* data,
                     uint64_t offset, ThreadPool& pool);

 private:
  struct Entry {
    uint64_t begin = 0, end = 0;         // what it was made from
    uint64_t touched = 1;                // counts up
    uint64_t made_at = 0;                // `touched` then
    std::unique_ptr<std::byte[]> bytes;  // what the slot holds
  };

  std::mutex mutex_;  // for the map and the counts; bytes are the device thread's alone
  std::map<std::vector<uint64_t>, Entry> entries_;  // by place
};

// Whether the kernels cannot take the slot's values where they are.
bool is_repacked(const Instance& instance, size_t slot);

// What lies behind a buffer. No part of the real stack compares an argument's reach with its
// buffer: a DMA goes on into whatever is there.

// The buffer given for an argument: the device's copy of its bytes.
struct Binding {
  std::byte* data = nullptr;
  DeviceMemory* memory = nullptr;  // holds the whole buffer
  uint64_t offset = 0;             // in it
};

// An argument that reaches beyond its buffer: the buffer's bytes for the time of one run, and
// poison behind them. The poison is NaN in every float type, so that what was read there shows.
class GuardMemory {
 public:
  // `bytes` from where the buffer begins are memory, none where nothing was set; `size` of them are
  // the buffer's, more where it is a window into another. `reach` are touched.
  GuardMemory(size_t argument, const Binding& buffer, uint64_t size, uint64_t bytes,
              uint64_t reach);

  Binding binding() { return {memory_.data(), &packed_, 0}; }
  void fill();       // before the run
  void give_back();  // after it
  bool was_reached() const { return was_reached_; }
  std::string report() const;

 private:
  const size_t argument_;
  const Binding buffer_;
  const uint64_t size_, bytes_;
  std::vector<std::byte> memory_;
  DeviceMemory packed_;
  bool was_reached_ = false;
  uint64_t written_ = 0;  // bytes of poison that are none any more
};

// Pages of the process that a buffer is made of.

// Why the driver cannot pin them: it pins for writing, unless the range lies in one mapping that is
// not writable and cannot be made so. A private mapping of a file always can.
std::optional<std::string> why_not_pinned(const void* pages, size_t bytes);

// What a sync does where the NPU does not see the processor's caches. In either direction the
// driver flushes the cache lines of the range (CLFLUSH): lines that the host has written go to
// memory whole, and what the host reads next comes from memory. The bytes beside a written byte are
// the line's as it was fetched, so they overwrite what the device has written since.

struct CachedBuffer {
  std::byte* host = nullptr;    // as its caches have it; at the begin of a line
  std::byte* device = nullptr;  // memory
  std::byte* synced = nullptr;  // what both were when a line was last flushed
  uint64_t size = 0;
};

struct Flush {
  uint64_t begin = 0, end = 0;  // lines
  bool wrote_back = false;      // lines of the host's
  uint64_t lost = 0;            // bytes that the device had written and the host's lines overwrote
};

// The host has written the range: whether it wrote the value that was there cannot be seen.
Flush flush_to_device(const CachedBuffer& buffer, uint64_t begin, uint64_t end);
// Lines that differ from what was last synced are those that the host has written.
Flush flush_from_device(const CachedBuffer& buffer, uint64_t begin, uint64_t end);

}  // namespace tyto::vxrt
