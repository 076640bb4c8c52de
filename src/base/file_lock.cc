#include "base/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace tyto {

FileLock::FileLock(const std::filesystem::path& path) {
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor_ < 0) fail_input(path.string(), "cannot open: {}", std::strerror(errno));
  while (::flock(descriptor_, LOCK_EX) != 0) {
    if (errno == EINTR) continue;
    const int saved_errno = errno;
    ::close(descriptor_);
    fail_input(path.string(), "cannot lock: {}", std::strerror(saved_errno));
  }
}

FileLock::~FileLock() {
  ::close(descriptor_);
}

}  // namespace tyto
