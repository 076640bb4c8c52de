// Kernels and buffers of the ELF flow.
#pragma once

#include <xrt/xrt_bo.h>
#include <xrt/xrt_device.h>
#include <xrt/xrt_hw_context.h>
#include <xrt/xrt_kernel.h>

#include <cstddef>
#include <string>

namespace xrt {
inline namespace vnpu {
namespace ext {

class bo : public xrt::bo {
 public:
  bo() = default;
  bo(const device& device, size_t size);
  bo(const device& device, void* user_pointer, size_t size);
};

class kernel : public xrt::kernel {
 public:
  kernel() = default;
  kernel(const hw_context& context, const std::string& name);
};

}  // namespace ext
}  // namespace vnpu
}  // namespace xrt
