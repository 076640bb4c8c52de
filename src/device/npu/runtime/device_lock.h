// One process at a time on a device. XRT would let several in; their contexts would take turns, and
// each would report the other's time as its own.
#pragma once

#include <filesystem>
#include <string>

namespace tyto {

class DeviceLock {
 public:
  // Throws a device Error naming the process that holds it. An empty path locks nothing.
  DeviceLock(const std::filesystem::path& path, const std::string& device);
  ~DeviceLock();
  DeviceLock(const DeviceLock&) = delete;
  DeviceLock& operator=(const DeviceLock&) = delete;

 private:
  int descriptor_ = -1;
};

}  // namespace tyto
