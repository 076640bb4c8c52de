// Identity of an image: here, the content hash of its file.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace xrt {
inline namespace vnpu {

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

}  // namespace vnpu
}  // namespace xrt
