// Hardware contexts: the right to run one image.
#pragma once

#include <xrt/experimental/xrt_elf.h>
#include <xrt/xrt_device.h>
#include <xrt/xrt_uuid.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace xrt {
inline namespace vnpu {

struct hw_context_impl;

class hw_context {
 public:
  using cfg_param_type = std::map<std::string, uint32_t>;
  using qos_type = cfg_param_type;
  using cfg_type = std::map<std::string, std::string>;
  enum class access_mode : uint8_t { exclusive = 0, shared = 1 };

  hw_context() = default;
  hw_context(const device& device, const elf& elf);
  hw_context(const device& device, const elf& elf, const cfg_param_type& parameters);
  hw_context(const device& device, const elf& elf, const cfg_param_type& parameters,
             access_mode mode);
  hw_context(const device& device, const elf& elf, const cfg_type& parameters);
  hw_context(const device& device, const elf& elf, const cfg_type& parameters, access_mode mode);
  hw_context(const device& device, const cfg_param_type& parameters);
  hw_context(const device& device, const cfg_param_type& parameters, access_mode mode);
  hw_context(const device& device, const uuid& xclbin_id);
  hw_context(const device& device, const uuid& xclbin_id, const cfg_param_type& parameters);
  hw_context(const device& device, const uuid& xclbin_id, const cfg_type& parameters);
  hw_context(const device& device, const uuid& xclbin_id, access_mode mode);

  void add_config(const elf& elf);

  const std::shared_ptr<hw_context_impl>& get_handle() const { return handle_; }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  std::shared_ptr<hw_context_impl> handle_;  // shared by copies, kernels and run lists
};

}  // namespace vnpu
}  // namespace xrt
