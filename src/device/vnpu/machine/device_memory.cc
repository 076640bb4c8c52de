#include "device/vnpu/machine/device_memory.h"

#include <algorithm>
#include <cstring>

#include "device/cpu/interpreter.h"
#include "device/vnpu/images/q4nx_blocks.h"
#include "tensor/transpose.h"

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

}  // namespace tyto::vxrt
