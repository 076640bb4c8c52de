// A loaded program: lowered and recorded at the first call of a form, submitted once per call.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "device/device.h"
#include "device/vulkan/dispatch.h"
#include "device/vulkan/gpu.h"
#include "program/kernels.h"

namespace tyto::vulkan {

class VulkanExecutable : public Executable {
 public:
  VulkanExecutable(std::shared_ptr<Gpu> gpu, Program program, std::span<const TensorView> weights,
                   Trace& trace);
  ~VulkanExecutable() override;

  void bind(uint16_t slot, const Buffer& buffer) override;
  void submit(const Call& call) override;
  Completion wait(std::chrono::milliseconds timeout) override;

 private:
  // The commands of a call's form, with a timestamp at both ends; `timed` has one after each
  // dispatch.
  struct Recording {
    VkCommandBuffer commands = VK_NULL_HANDLE;
    VkCommandBuffer timed = VK_NULL_HANDLE;
    Lowered lowered = {};
    std::vector<std::shared_ptr<Memory>> temporaries = {};  // shared among the recordings
    std::vector<LaunchGroup> groups = {};
    std::vector<uint16_t> names = {};  // [groups]
    uint64_t device_ns = 0;            // of the last call: the next one takes about as long
    uint32_t cost_rows = 0;            // of the call that `cost` was counted for
    Cost cost = {};                    // of launches that read no cache: it depends on rows alone
  };

  void store_weights(std::span<const TensorView> weights);
  Recording& recording_for(const Call& call);
  void make_room_for_call(uint64_t bytes);
  void add_recording(const CallForm& form);
  VkCommandBuffer record(const Recording& recording, const CallForm& form, bool is_timed);
  void record_dispatches(VkCommandBuffer commands, const Recording& recording, bool is_timed);
  void record_downloads(VkCommandBuffer commands, uint32_t rows);
  uint64_t address(Operand operand, const Recording& recording) const;
  void forget_recordings();
  void upload_inputs(const Call& call);
  void download_outputs();
  void poll_fence(uint64_t timeout_ns);
  void wait_for_fence(std::chrono::milliseconds timeout);
  void read_timestamps();
  Cost declared_cost();

  std::shared_ptr<Gpu> gpu_;  // shared with the device
  Program program_;
  Trace& trace_;
  uint8_t device_ = 0;
  uint16_t prepare_name_ = 0;
  std::vector<const Launch*> cache_launches_;     // their cost depends on positions
  uint32_t page_ = 0;                             // positions of a page; 0: no cache
  std::vector<std::shared_ptr<Memory>> weights_;  // [slots]; shared with other programs
  std::vector<Buffer> buffers_;                   // [slots]
  std::vector<std::shared_ptr<Memory>> temporaries_;
  std::unique_ptr<Memory> call_data_;
  std::map<CallForm, Recording> recordings_;
  VkFence fence_ = VK_NULL_HANDLE;
  VkQueryPool queries_ = VK_NULL_HANDLE;
  uint32_t query_count_ = 0;
  // Of the call at hand.
  Call call_;
  Recording* current_ = nullptr;
  bool is_timed_ = false, is_pending_ = false;
  uint64_t transfers_before_ = 0;
  Completion done_;
};

}  // namespace tyto::vulkan
