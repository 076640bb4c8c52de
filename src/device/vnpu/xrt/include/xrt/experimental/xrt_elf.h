// ELF images: control code with every reconfiguration inside. device/vxrt/image.h has the format.
#pragma once

#include <xrt/xrt_uuid.h>

#include <cstddef>
#include <cstdint>
#include <istream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace xrt {
inline namespace vnpu {

struct image_impl;

class elf {
 public:
  enum class platform : uint8_t { aie2p = 69 };  // other generations keep their number

  class kernel {
   public:
    enum class data_type : uint8_t { scalar, global };

    class instance {
     public:
      explicit instance(std::string name) : name_(std::move(name)) {}
      std::string get_name() const { return name_; }

     private:
      std::string name_;
    };

    explicit kernel(std::shared_ptr<image_impl> image) : image_(std::move(image)) {}
    std::string get_name() const;
    size_t get_num_args() const;
    data_type get_arg_data_type(size_t index) const;
    std::vector<instance> get_instances() const;

   private:
    std::shared_ptr<image_impl> image_;  // shared with the elf it came from
  };

  elf() = default;
  explicit elf(const std::string& file);
  explicit elf(const std::string_view& bytes);
  explicit elf(std::istream& stream);
  elf(const void* data, size_t size);

  bool is_full_elf() const;
  uuid get_cfg_uuid() const;
  platform get_platform() const;
  uint32_t get_partition_size() const;  // columns
  std::vector<kernel> get_kernels() const;

  const std::shared_ptr<image_impl>& get_handle() const { return handle_; }

 private:
  std::shared_ptr<image_impl> handle_;  // shared by copies and the contexts that run it
};

}  // namespace vnpu
}  // namespace xrt
