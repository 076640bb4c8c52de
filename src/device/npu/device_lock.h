// One process at a time on a device. XRT would let several in; their contexts would take turns, and
// each would report the other's time as its own.
#pragma once

#include <filesystem>
#include <string>

namespace tyto {

// Where every user of this machine finds the NPU's lock: a folder that all may write to, whatever
// TMPDIR is in their session.
std::filesystem::path npu_lock_path();

class DeviceLock {
 public:
  // Throws a device Error naming the process that holds it. An empty path locks nothing. A file
  // that was left behind holds nothing: only a process that has it locked holds the device.
  DeviceLock(const std::filesystem::path& path, const std::string& device);
  ~DeviceLock();
  DeviceLock(const DeviceLock&) = delete;
  DeviceLock& operator=(const DeviceLock&) = delete;

 private:
  int descriptor_ = -1;
};

}  // namespace tyto
