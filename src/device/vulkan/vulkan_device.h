// A GPU through Vulkan, as a device: the same Programs as recorded command buffers.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "device/device.h"
#include "device/vulkan/gpu.h"
#include "device/vulkan/kernel_calls.h"
#include "program/kernels.h"
#include "program/program.h"

namespace tyto::vulkan {

// A loaded program: lowered and recorded when a form is prepared or at its first call, submitted at
// each.
class VulkanExecutable : public Executable {
 public:
  VulkanExecutable(std::shared_ptr<Gpu> gpu, Program program, std::span<const TensorView> weights,
                   Trace& trace);
  ~VulkanExecutable() override;

  void bind(uint16_t slot, const Buffer& buffer) override;
  void prepare(const Call& call) override;
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
    uint64_t device_ns = 0;            // the last call's: the next one takes about as long
    uint32_t cost_rows = 0;            // rows of the call that `cost` was counted for
    Cost cost = {};                    // launches' that read no cache: it depends on rows alone
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
  // The present call.
  Call call_;
  Recording* current_ = nullptr;
  bool is_timed_ = false, is_pending_ = false;
  uint64_t transfers_before_ = 0;
  Completion done_;
};

// What changes from call to call, as the kernels read it: 32-bit words in one small buffer.
//
//   word 0    rows of the call                word 2  where the table of segments begins
//   word 1    segments                        word 3  where the table of tiles begins
//   word 4    from a list of pages to the same sequence's for layers with a window; 0: the same
//   from 8    a row each: segment, position, the row that gather_rows takes, where the list of its
//             pages begins: all that a kernel needs of a row, without a second look
//   segments  first row, rows, position, where the list of pages begins
//   tiles     rows of one segment each, at most kTileRows: segment, first row, rows, 0
//   lists     numbers of pages, all sequences'; then those for layers with a window, if any

// Rows of a prompt that one workgroup of attention takes.
constexpr uint32_t kTileRows = 64;

struct CallSize {
  uint32_t tiles = 0;
  uint64_t words = 0;
};
// `page` is the positions of a page; 0: the program touches no cache. There is room for pages of
// windows whether the call has them or not, so that its recording stays.
CallSize call_size(const Call& call, uint32_t page);

// `to` has room for the words of call_size(); tables are as long as that says.
void write_call(const Call& call, uint32_t page, std::span<uint32_t> to);

// When a call ends: by the GPU's timestamps afterwards, by the last call of its form beforehand.

// Ticks from one timestamp to a later one. A queue's counter has `valid_bits` bits (36 on some
// GPUs) and wraps around; the bits above them mean nothing. 0 bits: the queue has no timestamps.
uint64_t ticks_between(uint64_t first, uint64_t last, uint32_t valid_bits);

// How long to sleep before the next look at the fence, `elapsed_ns` after the submission of a call
// whose form took `expected_ns` last time; 0: the end is near, so poll and then wait. A call that
// ends early is noticed at most kLongestNap later, or a 32nd of the time it took.
constexpr uint64_t kLongestNap = 250'000;
uint64_t nap_ns(uint64_t elapsed_ns, uint64_t expected_ns);

}  // namespace tyto::vulkan

namespace tyto {

std::span<const DeviceSetting> vulkan_setting_rows();
std::unique_ptr<Device> open_vulkan_device(const DeviceEnv& env);

}  // namespace tyto
