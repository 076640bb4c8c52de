// What the device keeps about one buffer beyond its bytes: weights in the order its arithmetic
// wants them, so that a token does not repack a model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
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
    std::unique_ptr<std::byte[]> bytes;  // of the slot
  };

  std::mutex mutex_;  // for the map and the counts; bytes are the device thread's alone
  std::map<std::vector<uint64_t>, Entry> entries_;  // by place
};

// Whether the kernels cannot take the slot's values where they are.
bool is_repacked(const Instance& instance, size_t slot);

}  // namespace tyto::vxrt
