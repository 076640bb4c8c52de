// xclbin images: a static design driven by instruction words. device/vxrt/image.h has the format.
#pragma once

#include <xrt/xrt_uuid.h>

#include <memory>
#include <string>
#include <vector>

namespace xrt {
inline namespace vnpu {

struct image_impl;

class xclbin {
 public:
  class kernel {
   public:
    explicit kernel(std::string name) : name_(std::move(name)) {}
    std::string get_name() const { return name_; }

   private:
    std::string name_;
  };

  xclbin() = default;
  explicit xclbin(const std::string& file);
  explicit xclbin(const std::vector<char>& data);

  uuid get_uuid() const;
  std::vector<kernel> get_kernels() const;

  const std::shared_ptr<image_impl>& get_handle() const { return handle_; }

 private:
  std::shared_ptr<image_impl> handle_;  // shared by copies and the contexts that run it
};

}  // namespace vnpu
}  // namespace xrt
