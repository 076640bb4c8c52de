// Buffers. Host and device have separate copies that sync() carries over, so a forgotten sync
// shows.
#pragma once

#include <xrt/xrt_device.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace xrt {
inline namespace vnpu {

// Sync directions of XRT's C interface.
enum xclBOSyncDirection {
  XCL_BO_SYNC_BO_TO_DEVICE = 0,
  XCL_BO_SYNC_BO_FROM_DEVICE = 1,
};

using memory_group = uint32_t;

struct bo_impl;

class bo {
 public:
  enum class flags : uint32_t {
    normal = 0,
    cacheable = 1u << 24,
    carveout = 1u << 25,
    svm = 1u << 27,
    device_only = 1u << 28,
    host_only = 1u << 29,
    p2p = 1u << 30,
  };

  bo() = default;
  bo(const device& device, size_t size, flags type, memory_group group);
  bo(const bo& parent, size_t size, size_t offset);

  template <typename Pointer>
  Pointer map() {
    return static_cast<Pointer>(map_host());
  }
  size_t size() const;
  uint64_t address() const;
  memory_group get_memory_group() const;
  void sync(xclBOSyncDirection direction);
  void sync(xclBOSyncDirection direction, size_t bytes, size_t offset);

  const std::shared_ptr<bo_impl>& get_handle() const { return handle_; }
  explicit operator bool() const { return handle_ != nullptr; }
  bool operator==(const bo& other) const { return handle_ == other.handle_; }

 protected:
  friend class run;
  explicit bo(std::shared_ptr<bo_impl> handle) : handle_(std::move(handle)) {}

 private:
  void* map_host();
  std::shared_ptr<bo_impl> handle_;  // shared by copies, sub-buffers and the runs it is set on
};

}  // namespace vnpu
}  // namespace xrt

using xrt::vnpu::XCL_BO_SYNC_BO_FROM_DEVICE;
using xrt::vnpu::XCL_BO_SYNC_BO_TO_DEVICE;
using xrt::vnpu::xclBOSyncDirection;
