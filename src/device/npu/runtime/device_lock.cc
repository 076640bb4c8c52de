#include "device/npu/runtime/device_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/error.h"

namespace tyto {
namespace {

// "1234 (tyto)", or as much as can be found out.
std::string owner(int descriptor) {
  std::array<char, 32> text = {};
  const ssize_t count = ::pread(descriptor, text.data(), text.size() - 1, 0);
  const long pid = count > 0 ? std::strtol(text.data(), nullptr, 10) : 0;
  if (pid <= 0) return "unknown";
  std::string name;
  std::getline(std::ifstream(fmt::format("/proc/{}/comm", pid)), name);
  return name.empty() ? std::to_string(pid) : fmt::format("{} ({})", pid, name);
}

}  // namespace

DeviceLock::DeviceLock(const std::filesystem::path& path, const std::string& device) {
  if (path.empty()) return;
  // Everybody may open it: the device is one for all users of the machine.
  const mode_t mask = ::umask(0);
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  const int open_error = errno;
  ::umask(mask);
  if (descriptor_ < 0)
    throw Error(
        ErrorCode::device, device,
        fmt::format("cannot open its lock {}: {}", path.string(), std::strerror(open_error)));
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    const std::string who = owner(descriptor_);
    ::close(descriptor_);
    throw Error(ErrorCode::device, device, "is in use by process " + who,
                "wait for it to end, or stop it");
  }
  const std::string pid = std::to_string(::getpid()) + "\n";
  if (::ftruncate(descriptor_, 0) != 0 ||
      ::pwrite(descriptor_, pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    ::close(descriptor_);
    throw Error(ErrorCode::device, device, fmt::format("cannot write its lock {}", path.string()));
  }
}

// The file stays: removing it while another process waits to lock it would leave two owners.
DeviceLock::~DeviceLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace tyto
