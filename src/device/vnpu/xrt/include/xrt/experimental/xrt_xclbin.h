// xclbin images: a static design driven by instruction words. device/vnpu/images/image.h has the
// format.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace xrt {
inline namespace vnpu {

struct image_impl;

// Identity of an image: here, the content hash of its file.
class uuid {
 public:
  uuid() = default;
  explicit uuid(const std::array<uint8_t, 16>& bytes) : bytes_(bytes) {}

  std::string to_string() const;
  explicit operator bool() const { return *this != uuid(); }
  bool operator==(const uuid& other) const = default;
  bool operator<(const uuid& other) const { return bytes_ < other.bytes_; }

 private:
  std::array<uint8_t, 16> bytes_ = {};
};

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
