#include "device/vnpu/machine/cache_lines.h"

#include <algorithm>
#include <cstring>

#include "base/round_up.h"

namespace tyto::vxrt {
namespace {

constexpr uint64_t kLine = 64;
constexpr uint64_t kBlock = 4096;  // lines looked at together, most of which are clean

Flush lines_of(const CachedBuffer& buffer, uint64_t begin, uint64_t end) {
  if (begin == end) return {};
  return {begin / kLine * kLine, std::min(round_up(end, kLine), buffer.size)};
}

bool is_clean(const CachedBuffer& buffer, uint64_t begin, uint64_t end) {
  return std::memcmp(buffer.host + begin, buffer.synced + begin, end - begin) == 0;
}

void write_back(const CachedBuffer& buffer, uint64_t begin, uint64_t end) {
  std::memcpy(buffer.device + begin, buffer.host + begin, end - begin);
  std::memcpy(buffer.synced + begin, buffer.host + begin, end - begin);
}

void fetch(const CachedBuffer& buffer, uint64_t begin, uint64_t end) {
  std::memcpy(buffer.host + begin, buffer.device + begin, end - begin);
  std::memcpy(buffer.synced + begin, buffer.device + begin, end - begin);
}

// Bytes that the device has changed and that are about to become something else.
uint64_t lost_bytes(const CachedBuffer& buffer, uint64_t begin, uint64_t end) {
  uint64_t lost = 0;
  for (uint64_t i = begin; i < end; ++i)
    lost += buffer.device[i] != buffer.synced[i] && buffer.device[i] != buffer.host[i];
  return lost;
}

}  // namespace

Flush flush_to_device(const CachedBuffer& buffer, uint64_t begin, uint64_t end) {
  Flush flush = lines_of(buffer, begin, end);
  if (begin == end) return flush;
  flush.lost = lost_bytes(buffer, flush.begin, begin) + lost_bytes(buffer, end, flush.end);
  write_back(buffer, flush.begin, flush.end);
  flush.wrote_back = true;
  return flush;
}

Flush flush_from_device(const CachedBuffer& buffer, uint64_t begin, uint64_t end) {
  Flush flush = lines_of(buffer, begin, end);
  for (uint64_t block = flush.begin; block < flush.end; block += kBlock) {
    const uint64_t block_end = std::min(block + kBlock, flush.end);
    if (is_clean(buffer, block, block_end)) {
      fetch(buffer, block, block_end);
      continue;
    }
    for (uint64_t line = block; line < block_end; line += kLine) {
      const uint64_t line_end = std::min(line + kLine, block_end);
      if (is_clean(buffer, line, line_end)) {
        fetch(buffer, line, line_end);
        continue;
      }
      flush.lost += lost_bytes(buffer, line, line_end);
      write_back(buffer, line, line_end);
      flush.wrote_back = true;
    }
  }
  return flush;
}

}  // namespace tyto::vxrt
