#include "base/file_use.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>

#include "base/error.h"

namespace tyto {
namespace {

struct FileUse {
  std::mutex mutex;
  std::set<FileId> inputs;
  std::multiset<FileId> pending;
};

FileUse& file_use() {
  static FileUse all;
  return all;
}

[[noreturn]] void refuse(const std::filesystem::path& path) {
  throw Error(ErrorCode::usage, path.string(),
              "is in use by this command, which never replaces what it reads or prints to",
              "name another file");
}

std::optional<FileId> id_of(int folder, const char* name, int flags) {
  struct statx status = {};
  if (::statx(folder, name, flags, STATX_TYPE | STATX_INO | STATX_BTIME, &status) != 0) return {};
  if (!S_ISREG(status.stx_mode)) return {};
  const bool has_time = (status.stx_mask & STATX_BTIME) != 0;
  const auto& made = status.stx_btime;
  return FileId{
      (uint64_t{status.stx_dev_major} << 32) | status.stx_dev_minor, status.stx_ino,
      has_time ? made.tv_sec * int64_t{1'000'000'000} + static_cast<int64_t>(made.tv_nsec) : 0};
}

// A prompt may come from stdin, and what is printed may go to a file.
bool is_standard_stream(const FileId& id) {
  const int streams[] = {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO};
  return std::any_of(std::begin(streams), std::end(streams),
                     [&](int stream) { return file_id(stream) == id; });
}

}  // namespace

std::optional<FileId> file_id(int descriptor) {
  return id_of(descriptor, "", AT_EMPTY_PATH);
}

std::optional<FileId> file_id(const std::filesystem::path& path) {
  return id_of(AT_FDCWD, path.c_str(), 0);
}

void add_input(const FileId& id, const std::filesystem::path& path) {
  const std::lock_guard lock(file_use().mutex);
  if (file_use().pending.contains(id)) refuse(path);
  file_use().inputs.insert(id);
}

void add_inputs_of(const std::filesystem::path& folder) {
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error))
    if (const auto id = file_id(it->path())) add_input(*id, it->path());
}

void check_not_in_use(const std::filesystem::path& path) {
  const std::optional<FileId> id = file_id(path);
  if (!id) return;
  const std::lock_guard lock(file_use().mutex);
  if (file_use().inputs.contains(*id) || is_standard_stream(*id)) refuse(path);
}

void check_no_standard_stream(const std::filesystem::path& path) {
  const std::optional<FileId> id = file_id(path);
  if (id && is_standard_stream(*id)) refuse(path);
}

PendingReplacement::PendingReplacement(const std::filesystem::path& path) : id_(file_id(path)) {
  check_not_in_use(path);
  if (!id_) return;
  const std::lock_guard lock(file_use().mutex);
  file_use().pending.insert(*id_);
}

PendingReplacement::~PendingReplacement() {
  if (!id_) return;
  const std::lock_guard lock(file_use().mutex);
  file_use().pending.erase(file_use().pending.find(*id_));
}

namespace {

constexpr std::chrono::milliseconds kPause(20);  // flock(2) itself knows no limit

int open_lock(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor < 0) fail_input(path.string(), "cannot open: {}", std::strerror(errno));
  return descriptor;
}

// False: another process has it.
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
