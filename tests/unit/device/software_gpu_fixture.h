// Programs of a few launches on llvmpipe and on the CPU, by the same code.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "device/vulkan/gpu.h"
#include "device/vulkan/vulkan_device.h"
#include "support/software_gpu.h"
#include "tensor/quant.h"

namespace tyto::testing_support {

using Values = std::vector<float>;
using Bytes = std::vector<std::byte>;

inline Values random_values(size_t count, uint32_t seed, float scale = 1) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> values(-scale, scale);
  Values result(count);
  for (float& value : result) value = values(random);
  return result;
}

inline Bytes to_bytes(DType type, const Values& values) {
  Bytes bytes(row_bytes(type, values.size()));
  quantize(type, values, bytes);
  return bytes;
}

inline Values to_values(DType type, const Bytes& bytes) {
  Values values(bytes.size() / info(type).block_bytes * info(type).block_values);
  dequantize(type, bytes, values);
  return values;
}

// What the slots of a program hold, and what lies in its weights: [slots]; empty: zeros.
struct Contents {
  std::vector<Bytes> slots;
  std::vector<TensorView> weights;

  explicit Contents(const Program& program)
      : slots(program.slots.size()), weights(program.slots.size()) {
    for (size_t i = 0; i < slots.size(); ++i) slots[i].resize(program.slots[i].bytes());
  }
  // In the slot's own type.
  void set(const Program& program, size_t slot, const Values& values) {
    const Slot& of = program.slots[slot];
    slots[slot] = to_bytes(of.dtype, values);
    if (of.kind == SlotKind::weight) weights[slot] = {of.dtype, of.rows, of.cols, slots[slot]};
  }
};

// A device that is no more than its GPU.
class BareGpu : public Device {
 public:
  explicit BareGpu(std::shared_ptr<vulkan::Gpu> gpu, Trace& trace)
      : gpu_(std::move(gpu)), trace_(trace) {}
  DeviceInfo info() const override { return {.name = "vulkan", .description = ""}; }
  std::optional<Refusal> why_not(const Program& program, const Launch& launch) const override {
    return vulkan::why_not(program, launch);
  }
  Buffer alloc(const Slot& slot, uint32_t = 0) override {
    return vulkan::new_slot_buffer(gpu_, slot);
  }
  void sync(const Buffer& buffer, Sync direction, size_t offset, size_t bytes) override {
    vulkan::sync_slot(buffer, direction, offset, bytes);
  }
  std::unique_ptr<Executable> load(const Program& program,
                                   std::span<const TensorView> weights) override {
    return std::make_unique<vulkan::VulkanExecutable>(gpu_, program, weights, trace_);
  }

 private:
  std::shared_ptr<vulkan::Gpu> gpu_;  // shared with what it hands out
  Trace& trace_;
};

// Runs calls one after the other and returns what the slots hold then.
inline std::vector<Bytes> run(Device& device, const Program& program, const Contents& before,
                              std::span<const Call> calls) {
  std::vector<Buffer> buffers(program.slots.size());
  const auto executable = device.load(program, before.weights);
  for (uint16_t i = 0; i < buffers.size(); ++i) {
    if (program.slots[i].kind == SlotKind::weight) continue;
    buffers[i] = device.alloc(program.slots[i]);
    std::memcpy(buffers[i].data, before.slots[i].data(), before.slots[i].size());
    device.sync(buffers[i], Sync::to_device, 0, buffers[i].size);
    executable->bind(i, buffers[i]);
  }
  for (const Call& call : calls) {
    executable->submit(call);
    executable->wait(std::chrono::seconds(60));
  }
  std::vector<Bytes> after(buffers.size());
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].data == nullptr) continue;
    if (program.slots[i].kind == SlotKind::kv)
      device.sync(buffers[i], Sync::from_device, 0, buffers[i].size);
    after[i].assign(buffers[i].data, buffers[i].data + buffers[i].size);
  }
  return after;
}

// One GPU for all tests of a suite. With `false` its memory is as one that the host cannot see, and
// bytes go through the staging ring.
class SoftwareGpu : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    const DeviceSettings settings = software_gpu();
    gpu_ = std::make_shared<vulkan::Gpu>(settings.at("gpu"), "");
    expect_validated();
    gpu_->context->facts.has_host_memory = GetParam();
    device_ = std::make_unique<BareGpu>(gpu_, trace_);
  }

  ThreadPool pool_{2};
  Trace trace_;
  std::shared_ptr<vulkan::Gpu> gpu_;  // shared with what it hands out
  std::unique_ptr<Device> device_;
  std::unique_ptr<Device> cpu_ = open_device("cpu", {pool_, trace_});
};

inline std::string memory_name(const testing::TestParamInfo<bool>& memory) {
  return memory.param ? "shared" : "apart";
}

}  // namespace tyto::testing_support
