// What all programs on one GPU share.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "device/device.h"
#include "device/vulkan/memory.h"
#include "device/vulkan/pipelines.h"

namespace tyto::vulkan {

struct Gpu {
  Gpu(const std::string& wanted, const std::filesystem::path& pipeline_file);
  ~Gpu();

  std::shared_ptr<Context> context;
  Transfers transfers;
  Pipelines pipelines;
  WeightStore weights;
};

// A slot's memory, behind Buffer::handle.
struct SlotMemory {
  std::shared_ptr<Gpu> gpu;  // shared with the device and its executables
  Memory memory;             // what kernels use
  // Where the host looks, if it cannot see that: a buffer that recorded copies end in, or plain
  // memory that is committed as it is touched.
  std::unique_ptr<Memory> mirror = {};
  std::shared_ptr<void> shadow = {};
};

Buffer new_slot_buffer(const std::shared_ptr<Gpu>& gpu, const Slot& slot);
SlotMemory& slot_memory(const Buffer& buffer);
void sync_slot(const Buffer& buffer, Sync direction, size_t offset, size_t bytes);

}  // namespace tyto::vulkan
