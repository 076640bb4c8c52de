#include "device/npu/device_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/error.h"

namespace tyto {
namespace {

// "1234 (tyto)", or as much as can be found out. The system knows who has the lock; what a process
// had written into the file would outlive it. By the inode alone: file systems with subvolumes are
// another device here than in the file's own status.
std::string owner(int descriptor) {
  struct stat status = {};
  if (::fstat(descriptor, &status) != 0) return "unknown";
  const std::string inode = fmt::format(":{}", status.st_ino);
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    std::istringstream words(line);
    std::string number, kind, advisory, access, pid, file;
    words >> number >> kind >> advisory >> access >> pid >> file;
    if (kind != "FLOCK" || !file.ends_with(inode)) continue;
    std::string name;
    std::getline(std::ifstream("/proc/" + pid + "/comm"), name);
    return name.empty() ? pid : fmt::format("{} ({})", pid, name);
  }
  return "unknown";
}

// An existing file is opened without O_CREAT: in a sticky folder (fs.protected_regular) the kernel
// refuses that flag for a file of another user. A file that may only be read will do, flock asks
// for no more.
int open_lock(const std::filesystem::path& path) {
  constexpr int kAlways = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;  // nor waiting for a pipe's writer
  constexpr int kAttempts = 8;  // another process may make or remove the file in between
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    for (const int access : {O_RDWR, O_RDONLY}) {
      const int descriptor = ::open(path.c_str(), access | kAlways);
      if (descriptor >= 0) return descriptor;
    }
    if (errno != ENOENT) return -1;
    const int made = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | kAlways, 0666);
    if (made >= 0) {
      (void)::fchmod(made, 0666);  // whatever the umask: the device is one for all users
      return made;
    }
    if (errno != EEXIST) return -1;
  }
  return -1;
}

}  // namespace

// Not the folder that this user may write to, or root and others would lock different files.
std::filesystem::path npu_lock_path() {
  struct stat status = {};
  const bool is_for_all = ::stat("/run/lock", &status) == 0 && S_ISDIR(status.st_mode) &&
                          (status.st_mode & S_IWOTH) != 0;
  return std::filesystem::path(is_for_all ? "/run/lock" : "/tmp") / "tyto-npu0.lock";
}

DeviceLock::DeviceLock(const std::filesystem::path& path, const std::string& device) {
  if (path.empty()) return;
  descriptor_ = open_lock(path);
  if (descriptor_ < 0)
    throw Error(ErrorCode::device, device,
                fmt::format("cannot open its lock {}: {}", path.string(), std::strerror(errno)),
                "remove the file, or let everybody read it");
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    const std::string who = owner(descriptor_);
    ::close(descriptor_);
    throw Error(ErrorCode::device, device, "is in use by process " + who,
                "wait for it to end, or stop it");
  }
}

// The file stays: removing it while another process waits to lock it would leave two owners.
DeviceLock::~DeviceLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace tyto
