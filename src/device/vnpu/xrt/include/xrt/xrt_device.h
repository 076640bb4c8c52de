// The device. There is one virtual NPU per process (device/vxrt/control.h), so handles are alike.
#pragma once

#include <xrt/experimental/xrt_exception.h>
#include <xrt/experimental/xrt_xclbin.h>
#include <xrt/xrt_uuid.h>

#include <memory>
#include <string>

namespace xrt {
inline namespace vnpu {
namespace info {

enum class device : unsigned { bdf, name, platform, host };

}  // namespace info

struct device_impl;

class device {
 public:
  class error : public xrt::exception {
   public:
    using xrt::exception::exception;
  };
  class runtime_error : public error {
   public:
    using error::error;
  };
  class oom_error : public error {
   public:
    using error::error;
  };

  device() = default;
  explicit device(unsigned index);
  explicit device(int index);
  explicit device(const std::string& bdf);  // or an index as text

  template <info::device P>
  std::string get_info() const {
    return get_info_text(P);
  }
  uuid register_xclbin(const xclbin& image);

  const std::shared_ptr<device_impl>& get_handle() const { return handle_; }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  std::string get_info_text(info::device what) const;
  std::shared_ptr<device_impl> handle_;  // shared by copies
};

}  // namespace vnpu
}  // namespace xrt
