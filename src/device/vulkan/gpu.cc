#include "device/vulkan/gpu.h"

#include <sys/mman.h>

#include <cstring>

#include "base/error.h"

namespace tyto::vulkan {
namespace {

// What the host writes before each call lies where kernels can read it without a copy; a few bytes
// that it reads are written straight into its memory.
MemoryKind kind_for(const Slot& slot) {
  constexpr uint64_t kFewBytes = 64 << 10;
  if (slot.kind == SlotKind::input) return MemoryKind::host_write;
  return slot.kind == SlotKind::output && slot.bytes() <= kFewBytes ? MemoryKind::host_read
                                                                    : MemoryKind::gpu;
}

std::shared_ptr<void> reserved(size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    throw Error(ErrorCode::device, "vulkan", fmt::format("cannot reserve {} bytes", bytes),
                "lower the context with -c");
  return {memory, [bytes](void* p) { ::munmap(p, bytes); }};
}

// How cooperative matrices lie in registers is a driver's own affair; it is asked once.
uint32_t matrix_layout(Gpu& gpu) {
  Context& context = *gpu.context;
  const Api& api = context.api;
  Memory answer(gpu.context, sizeof(uint32_t), MemoryKind::host_read);
  std::memset(answer.mapped, 0, sizeof(uint32_t));
  VkCommandBuffer commands = context.new_command_buffer();
  const auto begin =
      structure<VkCommandBufferBeginInfo>(VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO);
  check(api.vkBeginCommandBuffer(commands, &begin), "recording");
  api.vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE,
                        gpu.pipelines.get({"coop_layout", {context.facts.subgroup_size}}));
  api.vkCmdPushConstants(commands, context.layout, VK_SHADER_STAGE_COMPUTE_BIT, 0,
                         sizeof answer.address, &answer.address);
  api.vkCmdDispatch(commands, 1, 1, 1);
  check(api.vkEndCommandBuffer(commands), "recording");
  VkFence fence = context.new_fence();
  context.submit(commands, fence);
  constexpr uint64_t kTimeoutNs = 10'000'000'000;
  if (!context.wait(fence, kTimeoutNs)) {
    context.is_lost = true;
    throw Error(ErrorCode::device, "vulkan", "the GPU did not answer within ten seconds");
  }
  api.vkDestroyFence(context.device, fence, nullptr);
  api.vkFreeCommandBuffers(context.device, context.commands, 1, &commands);
  uint32_t layout = 0;
  std::memcpy(&layout, answer.mapped, sizeof layout);
  return layout;
}

}  // namespace

Gpu::Gpu(const std::string& wanted, const std::filesystem::path& pipeline_file)
    : context(std::make_shared<Context>(wanted)),
      transfers(context),
      pipelines(context, pipeline_file),
      weights(context, transfers) {
  if (context->facts.multiplies_f16) context->facts.matrix_layout = matrix_layout(*this);
}

// Where loading a program failed bytes may still travel, to memory that must outlive that.
Gpu::~Gpu() {
  try {
    transfers.finish();
  } catch (const Error&) {  // it is lost: nothing of it can be given back
  }
}

Buffer new_slot_buffer(const std::shared_ptr<Gpu>& gpu, const Slot& slot) {
  auto slot_memory = std::shared_ptr<SlotMemory>(
      new SlotMemory{gpu, Memory(gpu->context, slot.bytes(), kind_for(slot))});
  Memory& memory = slot_memory->memory;
  // A cache that the host can see is committed as it is touched; kernels read no position that was
  // not written.
  if (slot.kind != SlotKind::kv || memory.mapped == nullptr) gpu->transfers.zero(memory);
  gpu->transfers.finish();
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
