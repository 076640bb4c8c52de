// The release of XRT whose behaviour the virtual device follows.
#pragma once

namespace xrt {
inline namespace vnpu {
namespace version {

constexpr unsigned kMajor = 2, kMinor = 26;
constexpr unsigned code() {
  return kMajor << 16 | kMinor;
}

}  // namespace version
}  // namespace vnpu
}  // namespace xrt
