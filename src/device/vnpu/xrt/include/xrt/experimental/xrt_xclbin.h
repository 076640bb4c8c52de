// xclbin images: a static design driven by instruction words. device/vnpu/images/image.h has the
// format.
#pragma once

#include <xrt/xrt_uuid.h>

#include <memory>
#include <vector>

namespace xrt {
inline namespace vnpu {

struct image_impl;

class xclbin {
 public:
  xclbin() = default;
  explicit xclbin(const std::vector<char>& data);

  uuid get_uuid() const;

  const std::shared_ptr<image_impl>& get_handle() const { return handle_; }

 private:
  std::shared_ptr<image_impl> handle_;  // shared by copies and the contexts that run it
};

}  // namespace vnpu
}  // namespace xrt
