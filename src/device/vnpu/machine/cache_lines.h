// What a sync does where the NPU does not see the processor's caches. In either direction the
// driver flushes the cache lines of the range (CLFLUSH): lines that the host has written go to
// memory whole, and what the host reads next comes from memory. The bytes beside a written byte are
// the line's as it was fetched, so they overwrite what the device has written since.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tyto::vxrt {

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
