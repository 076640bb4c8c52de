// The last thing that went wrong on the device by itself.
#pragma once

#include <xrt/xrt_device.h>

#include <cstdint>
#include <string>

namespace xrt {
inline namespace vnpu {

enum xrtErrorClass {
  XRT_ERROR_CLASS_SYSTEM = 1,
  XRT_ERROR_CLASS_AIE,
  XRT_ERROR_CLASS_HARDWARE,
};

class error {
 public:
  error(const device& device, xrtErrorClass which);  // the AIE class has what runs ended with

  uint64_t get_error_code() const { return code_; }  // 0: nothing
  std::string to_string() const { return text_; }

 private:
  uint64_t code_ = 0;
  std::string text_;
};

}  // namespace vnpu
}  // namespace xrt

using xrt::vnpu::XRT_ERROR_CLASS_AIE;
using xrt::vnpu::XRT_ERROR_CLASS_HARDWARE;
using xrt::vnpu::XRT_ERROR_CLASS_SYSTEM;
using xrt::vnpu::xrtErrorClass;
