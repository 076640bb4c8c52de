// ELF images: control code with every reconfiguration inside. device/vnpu/images/image.h has the
// format.
#pragma once

#include <cstddef>
#include <memory>

namespace xrt {
inline namespace vnpu {

struct image_impl;

class elf {
 public:
  elf() = default;
  elf(const void* data, size_t size);

  const std::shared_ptr<image_impl>& get_handle() const { return handle_; }

 private:
  std::shared_ptr<image_impl> handle_;  // shared by copies and the contexts that run it
};

}  // namespace vnpu
}  // namespace xrt
