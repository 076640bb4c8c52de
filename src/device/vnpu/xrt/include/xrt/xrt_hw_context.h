// Hardware contexts: the right to run one image.
#pragma once

#include <xrt/experimental/xrt_elf.h>
#include <xrt/xrt_device.h>

#include <memory>

namespace xrt {
inline namespace vnpu {

struct hw_context_impl;

class hw_context {
 public:
  hw_context() = default;
  hw_context(const device& device, const elf& elf);
  hw_context(const device& device, const uuid& xclbin_id);

  const std::shared_ptr<hw_context_impl>& get_handle() const { return handle_; }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  std::shared_ptr<hw_context_impl> handle_;  // shared by copies and kernels
};

}  // namespace vnpu
}  // namespace xrt
