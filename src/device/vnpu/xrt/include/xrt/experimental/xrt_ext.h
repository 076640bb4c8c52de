// Kernels and buffers of the ELF flow.
#pragma once

#include <xrt/experimental/xrt_module.h>
#include <xrt/xrt_bo.h>
#include <xrt/xrt_device.h>
#include <xrt/xrt_hw_context.h>
#include <xrt/xrt_kernel.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace xrt {
inline namespace vnpu {
namespace ext {

class bo : public xrt::bo {
 public:
  enum class access_mode : uint64_t {
    none = 0,
    read = 1,
    write = 2,
    read_write = 3,
    local = 0,
    shared = 4,
    process = 8,
    hybrid = 16,
  };

  bo() = default;
  bo(const device& device, size_t size);
  bo(const device& device, size_t size, access_mode mode);
  bo(const device& device, void* user_pointer, size_t size);
  bo(const device& device, void* user_pointer, size_t size, access_mode mode);
  bo(const hw_context& context, size_t size);
  bo(const hw_context& context, size_t size, access_mode mode);
};

class kernel : public xrt::kernel {
 public:
  kernel() = default;
  kernel(const hw_context& context, const std::string& name);
  kernel(const hw_context& context, const module& code, const std::string& name);
};

}  // namespace ext
}  // namespace vnpu
}  // namespace xrt
