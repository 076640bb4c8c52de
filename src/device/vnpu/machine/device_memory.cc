#include "device/vnpu/machine/device_memory.h"

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>

#include <fmt/format.h>

#include "base/round_up.h"
#include "device/cpu/interpreter.h"
#include "device/vnpu/images/air_images.h"
#include "tensor/float16.h"

namespace tyto::vxrt {
namespace {

constexpr size_t kRowsAtOnce = 32;

std::vector<uint64_t> key_of(const Slot& slot, const SlotPlace& place, uint64_t offset) {
  std::vector<uint64_t> key = {offset,
                               static_cast<uint64_t>(slot.dtype),
                               slot.rows,
                               slot.cols,
                               static_cast<uint64_t>(place.encoding),
                               place.pattern.offset,
                               place.q4nx.phase_rows,
                               place.q4nx.phase_cols,
                               place.q4nx.first_row,
                               place.q4nx.chunk_rows,
                               place.q4nx.chunk_stride};
  for (const Pattern::Dim& dim : place.pattern.dims) {
    key.push_back(dim.size);
    key.push_back(dim.stride);
  }
  return key;
}

void collect(const Slot& slot, const Pattern& pattern, const std::byte* in, std::byte* out,
             ThreadPool& pool) {
  const uint64_t width = row_bytes(slot.dtype, 1);
  const bool is_transposed = width == sizeof(uint16_t) && pattern.dims.size() == 2 &&
                             pattern.dims[0].size == slot.rows && pattern.dims[0].stride == 1;
  pool.parallel_for(slot.rows, kRowsAtOnce, [&](size_t begin, size_t end) {
    if (is_transposed)
      return transpose_16bit(reinterpret_cast<const uint16_t*>(in) + pattern.offset + begin,
                             pattern.dims[1].stride, slot.cols, end - begin,
                             reinterpret_cast<uint16_t*>(out) + begin * slot.cols, slot.cols);
    for_each_stretch(pattern, begin * slot.cols, end * slot.cols, [&](const Stretch& stretch) {
      for (uint64_t i = 0; i < stretch.count; ++i)
        std::memcpy(out + (stretch.first + i) * width,
                    in + (stretch.at + i * stretch.stride) * width, width);
    });
  });
}

}  // namespace

void DeviceMemory::touch(uint64_t begin, uint64_t end) {
  std::lock_guard lock(mutex_);
  for (auto& [place, entry] : entries_)
    if (begin < entry.end && entry.begin < end) ++entry.touched;
}

std::byte* DeviceMemory::weights(const Slot& slot, const SlotPlace& place, const std::byte* data,
                                 uint64_t offset, ThreadPool& pool) {
  std::unique_lock lock(mutex_);
  Entry& entry = entries_[key_of(slot, place, offset)];
  if (entry.made_at == entry.touched) return entry.bytes.get();
  const uint64_t touched = entry.touched;
  const uint64_t width = place.encoding == Encoding::q4nx ? 2 : row_bytes(slot.dtype, 1);
  entry.begin = offset + place.pattern.offset * width;
  entry.end = offset + reach(slot, place);
  lock.unlock();
  if (!entry.bytes) entry.bytes = std::make_unique_for_overwrite<std::byte[]>(slot.bytes());
  if (place.encoding == Encoding::q4nx)
    decode_q4nx(data + place.pattern.offset * 2, place.q4nx, slot.rows, slot.cols,
                reinterpret_cast<uint16_t*>(entry.bytes.get()), pool);
  else
    collect(slot, place.pattern, data, entry.bytes.get(), pool);
  lock.lock();
  entry.made_at = touched;  // a touch while it was made makes it old at once
  return entry.bytes.get();
}

bool is_repacked(const Instance& instance, size_t slot) {
  const SlotPlace& place = instance.places[slot];
  return place.encoding == Encoding::q4nx ||
         cpu::pattern_problem(instance.program, slot, place.pattern).has_value();
}

namespace {

constexpr std::byte kPoison[] = {std::byte{0xa5}, std::byte{0x7f}};

std::byte poison_at(uint64_t offset) {
  return kPoison[offset % sizeof kPoison];
}

}  // namespace

GuardMemory::GuardMemory(size_t argument, const Binding& buffer, uint64_t size, uint64_t bytes,
                         uint64_t reach)
    : argument_(argument), buffer_(buffer), size_(size), bytes_(bytes), memory_(reach) {}

void GuardMemory::fill() {
  if (bytes_ > 0) std::memcpy(memory_.data(), buffer_.data, bytes_);
  for (uint64_t i = bytes_; i < memory_.size(); ++i) memory_[i] = poison_at(i);
}

void GuardMemory::give_back() {
  was_reached_ = true;
  if (bytes_ > 0 && std::memcmp(memory_.data(), buffer_.data, bytes_) != 0) {
    std::memcpy(buffer_.data, memory_.data(), bytes_);
    buffer_.memory->touch(buffer_.offset, buffer_.offset + bytes_);
  }
  for (uint64_t i = bytes_; i < memory_.size(); ++i) written_ += memory_[i] != poison_at(i);
}

std::string GuardMemory::report() const {
  return fmt::format(
      "argument {} reached {} bytes beyond its buffer of {}, and wrote {} that belong "
      "to no buffer",
      argument_, memory_.size() - size_, size_, written_);
}

namespace {

struct Mapping {
  uintptr_t begin = 0, end = 0;
  std::string flags;  // the kernel's VMA's: " rd mr mw me"

  bool has(const char* flag) const { return flags.find(std::string(" ") + flag) != flags.npos; }
};

std::optional<Mapping> next_mapping(std::ifstream& maps) {
  Mapping mapping;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &begin, &end) == 2) {
      mapping.begin = begin;
      mapping.end = end;
    }
    if (!line.starts_with("VmFlags:")) continue;
    mapping.flags = line.substr(sizeof("VmFlags:") - 1);
    return mapping;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> why_not_pinned(const void* pages, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(pages);
  const uintptr_t end = begin + bytes;
  std::ifstream maps("/proc/self/smaps");
  while (const std::optional<Mapping> mapping = next_mapping(maps)) {
    if (mapping->end <= begin || mapping->begin >= end || mapping->has("wr")) continue;
    const bool is_whole = mapping->begin <= begin && mapping->end >= end;
    if (is_whole && !mapping->has("mw")) return std::nullopt;
    return "the pages are read-only, but their mapping may become writable";
  }
  return std::nullopt;
}

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
