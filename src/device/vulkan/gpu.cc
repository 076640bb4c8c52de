#include "device/vulkan/gpu.h"

#include <sys/mman.h>

#include "base/error.h"

namespace tyto::vulkan {
namespace {

// What the host writes before each call lies where kernels can read it without a copy.
MemoryKind kind_for(const Slot& slot) {
  return slot.kind == SlotKind::input ? MemoryKind::host_write : MemoryKind::gpu;
}

std::shared_ptr<void> reserved(size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    throw Error(ErrorCode::device, "vulkan", fmt::format("cannot reserve {} bytes", bytes),
                "lower the context with -c");
  return {memory, [bytes](void* p) { ::munmap(p, bytes); }};
}

}  // namespace

Buffer new_slot_buffer(const std::shared_ptr<Gpu>& gpu, const Slot& slot) {
  auto slot_memory = std::shared_ptr<SlotMemory>(
      new SlotMemory{gpu, Memory(gpu->context, slot.bytes(), kind_for(slot))});
  Memory& memory = slot_memory->memory;
  // A cache that the host can see is committed as it is touched; kernels read no position that was
  // not written.
  if (slot.kind != SlotKind::kv || memory.mapped == nullptr) gpu->transfers.zero(memory);
  std::byte* seen = memory.mapped;
  if (seen == nullptr && slot.kind == SlotKind::output) {
    slot_memory->mirror =
        std::make_unique<Memory>(gpu->context, slot.bytes(), MemoryKind::host_read);
    seen = slot_memory->mirror->mapped;
  } else if (seen == nullptr) {
    slot_memory->shadow = reserved(memory.size);
    seen = static_cast<std::byte*>(slot_memory->shadow.get());
  }
  return {.data = seen, .size = slot.bytes(), .handle = std::move(slot_memory)};
}

SlotMemory& slot_memory(const Buffer& buffer) {
  return *static_cast<SlotMemory*>(buffer.handle.get());
}

void sync_slot(const Buffer& buffer, Sync direction, size_t offset, size_t bytes) {
  SlotMemory& slot = slot_memory(buffer);
  if (slot.memory.mapped != nullptr || bytes == 0) return;
  TYTO_ASSERT(offset + bytes <= buffer.size);
  Transfers& transfers = slot.gpu->transfers;
  if (direction == Sync::from_device)
    return transfers.download(slot.memory, offset, buffer.bytes().subspan(offset, bytes));
  transfers.upload(slot.memory, offset, std::as_bytes(buffer.bytes().subspan(offset, bytes)));
  transfers.finish();
}

}  // namespace tyto::vulkan
