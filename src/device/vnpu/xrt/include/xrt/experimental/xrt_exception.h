// Base of XRT's public exceptions. Errors of the operating system leave XRT, and the virtual NPU,
// as std::system_error.
#pragma once

#include <exception>
#include <string>
#include <utility>

namespace xrt {
inline namespace vnpu {

class exception : public std::exception {
 public:
  explicit exception(std::string what) : what_(std::move(what)) {}
  const char* what() const noexcept override { return what_.c_str(); }

 private:
  std::string what_;
};

}  // namespace vnpu
}  // namespace xrt
