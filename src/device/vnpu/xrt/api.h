// What stands behind the handles of the XRT headers.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <xrt/xrt_bo.h>
#include <xrt/xrt_kernel.h>

#include "device/vnpu/machine/machine.h"

namespace xrt {
inline namespace vnpu {

// XRT reports misuse of its interface as a system error too, mostly EINVAL.
[[noreturn]] inline void fail_usage(const std::string& what, int error = EINVAL) {
  throw std::system_error(error, std::generic_category(), what);
}

struct device_impl {};  // the one Machine; a handle is proof that it was opened

struct image_impl {
  explicit image_impl(tyto::vxrt::Image image) : loaded(std::move(image)) {}
  tyto::vxrt::LoadedImage loaded;
};

struct hw_context_impl {
  explicit hw_context_impl(std::shared_ptr<tyto::vxrt::LoadedImage> image) {
    tyto::vxrt::Machine::get().open(context, std::move(image));
  }
  ~hw_context_impl() { tyto::vxrt::Machine::get().close(context); }
  hw_context_impl(const hw_context_impl&) = delete;
  hw_context_impl& operator=(const hw_context_impl&) = delete;

  tyto::vxrt::Context context;
};

// One buffer, or a window into another. The heap's and the host's pages are anonymous mappings,
// zero until touched.
struct bo_impl {
  bo_impl(size_t bytes, void* user_pointer, bool in_heap, uint32_t group);
  bo_impl(std::shared_ptr<bo_impl> whole, size_t bytes, size_t begin);
  ~bo_impl();
  bo_impl(const bo_impl&) = delete;
  bo_impl& operator=(const bo_impl&) = delete;

  std::shared_ptr<bo_impl> parent;  // a sub-buffer shares its parent's memory
  std::byte* host = nullptr;
  std::byte* device = nullptr;
  std::shared_ptr<tyto::vxrt::DeviceMemory> memory;  // shared with windows into the buffer
  size_t offset = 0;                                 // a window's in the whole buffer
  size_t size = 0;
  uint64_t address = 0;
  uint32_t group = 0;  // the memory's
  bool is_user_memory = false;
  bool is_heap = false;
  std::byte* synced = nullptr;  // hostile: what host and device were when they were last the same
  std::vector<std::shared_ptr<bo_impl>>
      clones;  // in other groups, shared with the runs they are set on
};

struct kernel_impl {
  std::shared_ptr<hw_context_impl> context;        // shared with the hw_context it was made from
  const tyto::vxrt::LoadedImage* image = nullptr;  // the context's
  tyto::vxrt::LoadedInstance* instance = nullptr;  // the image's
};

struct run_argument {
  std::shared_ptr<bo_impl> buffer;  // shared with the caller's bo
  uint64_t scalar = 0;
  bool is_scalar = false;
};

struct run_impl {
  explicit run_impl(std::shared_ptr<kernel_impl> of);
  ~run_impl();
  run_impl(const run_impl&) = delete;
  run_impl& operator=(const run_impl&) = delete;

  run_argument& argument(int index);
  const run_argument* find(size_t index) const {
    return index < arguments.size() ? &arguments[index] : nullptr;
  }
  // Until a wait has seen the end, whatever the device is doing, where it is hostile.
  bool is_in_progress() const;
  // Fixes buffers and call for the next submission. EINVAL: more buffers than a command takes.
  void prepare();

  std::shared_ptr<kernel_impl> kernel;  // shared with the kernel and its other runs
  std::vector<run_argument> arguments;
  std::unique_ptr<tyto::vxrt::Job> job = std::make_unique<tyto::vxrt::Job>();
  uint64_t heap_bytes = 0;
  const bool is_hostile = tyto::vxrt::Machine::get().is_hostile();
  std::atomic<bool> is_done = true;  // as far as the caller knows

 private:
  void bind(size_t index, const run_argument* argument, uint64_t span_bytes);
  void reach_beyond(size_t index, const bo_impl* buffer, uint64_t needed);
  void prepare_call(size_t first_scalar);
  void prepare_instructions();
};

}  // namespace vnpu
}  // namespace xrt
