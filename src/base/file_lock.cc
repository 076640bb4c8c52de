#include "base/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "base/error.h"

namespace tyto {
namespace {

constexpr std::chrono::milliseconds kPause(20);  // flock(2) itself knows no limit

int open_lock(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor < 0) fail_input(path.string(), "cannot open: {}", std::strerror(errno));
  return descriptor;
}

// False: somebody else has it.
bool lock(int descriptor, const std::filesystem::path& path) {
  while (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    const int saved_errno = errno;
    if (saved_errno == EWOULDBLOCK) return false;
    ::close(descriptor);
    fail_input(path.string(), "cannot lock: {}", std::strerror(saved_errno));
  }
  return true;
}

}  // namespace

FileLock::FileLock(const std::filesystem::path& path, std::chrono::milliseconds patience)
    : descriptor_(open_lock(path)) {
  const auto begin = std::chrono::steady_clock::now();
  while (!lock(descriptor_, path)) {
    if (std::chrono::steady_clock::now() - begin >= patience) {
      ::close(descriptor_);
      throw Error(ErrorCode::input, path.string(), "another process holds the lock",
                  "wait for it to end, and try again");
    }
    std::this_thread::sleep_for(kPause);
  }
}

std::unique_ptr<FileLock> FileLock::try_take(const std::filesystem::path& path) {
  const int descriptor = open_lock(path);
  if (!lock(descriptor, path)) {
    ::close(descriptor);
    return nullptr;
  }
  return std::unique_ptr<FileLock>(new FileLock(descriptor));
}

FileLock::~FileLock() {
  ::close(descriptor_);
}

}  // namespace tyto
