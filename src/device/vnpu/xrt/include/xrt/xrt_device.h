// The device. There is one virtual NPU per process (device/vnpu/machine/machine.h), so handles are
// alike.
#pragma once

#include <xrt/experimental/xrt_xclbin.h>

#include <memory>
#include <string>

namespace xrt {
inline namespace vnpu {

struct device_impl;

class device {
 public:
  device() = default;
  explicit device(unsigned index);
  explicit device(const std::string& address);  // as on the PCI bus

  uuid register_xclbin(const xclbin& image);

  explicit operator bool() const { return handle_ != nullptr; }

 private:
  std::shared_ptr<device_impl> handle_;  // shared by copies
};

}  // namespace vnpu
}  // namespace xrt
