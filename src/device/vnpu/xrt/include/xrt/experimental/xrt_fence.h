// Fences between contexts, and between a context and the host: the n-th wait is for the n-th
// signal.
#pragma once

#include <xrt/xrt_device.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>

namespace xrt {
inline namespace vnpu {

struct fence_impl;

class fence {
 public:
  enum class access_mode : uint8_t { local, shared, process, hybrid };

  fence() = default;
  fence(const device& device, access_mode mode);

  std::cv_status wait(const std::chrono::milliseconds& timeout);  // 0 waits for ever
  void signal();

  const std::shared_ptr<fence_impl>& get_handle() const { return handle_; }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  std::shared_ptr<fence_impl> handle_;  // shared by copies
};

}  // namespace vnpu
}  // namespace xrt
