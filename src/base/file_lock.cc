#include "base/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace tyto {
namespace {

int open_lock(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor < 0) fail_input(path.string(), "cannot open: {}", std::strerror(errno));
  return descriptor;
}

// False: somebody else has it, and `how` says not to wait.
bool lock(int descriptor, int how, const std::filesystem::path& path) {
  while (::flock(descriptor, how) != 0) {
    if (errno == EINTR) continue;
    const int saved_errno = errno;
    ::close(descriptor);
    if (saved_errno == EWOULDBLOCK) return false;
    fail_input(path.string(), "cannot lock: {}", std::strerror(saved_errno));
  }
  return true;
}

}  // namespace

FileLock::FileLock(const std::filesystem::path& path) : descriptor_(open_lock(path)) {
  lock(descriptor_, LOCK_EX, path);
}

std::unique_ptr<FileLock> FileLock::try_take(const std::filesystem::path& path) {
  const int descriptor = open_lock(path);
  if (!lock(descriptor, LOCK_EX | LOCK_NB, path)) return nullptr;
  return std::unique_ptr<FileLock>(new FileLock(descriptor));
}

FileLock::~FileLock() {
  ::close(descriptor_);
}

}  // namespace tyto
