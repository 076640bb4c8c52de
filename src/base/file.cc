#include "base/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <optional>
#include <set>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/round_up.h"
#include "base/signal_tables.h"

namespace tyto {
namespace {

struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

FileStamp stamp_of(const struct stat& status) {
  const auto nanoseconds = [](const timespec& time) {
    return time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec;
  };
  return {.device = status.st_dev,
          .inode = status.st_ino,
          .size = static_cast<uint64_t>(status.st_size),
          .modified_ns = nanoseconds(status.st_mtim),
          .changed_ns = nanoseconds(status.st_ctim)};
}

struct stat open_replaceable(const std::filesystem::path& path, Descriptor& descriptor) {
  // Non-blocking, or opening a pipe would wait for its writer; files do not care.
  descriptor.fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor.fd < 0) fail_input(path.string(), "cannot open: {}", std::strerror(errno));
  struct stat status = {};
  if (::fstat(descriptor.fd, &status) != 0)
    fail_input(path.string(), "cannot stat: {}", std::strerror(errno));
  if (!S_ISREG(status.st_mode)) fail_input(path.string(), "not a regular file");
  return status;
}

struct stat open_regular(const std::filesystem::path& path, Descriptor& descriptor) {
  const struct stat status = open_replaceable(path, descriptor);
  if (const auto id = file_id(descriptor.fd)) add_input(*id, path);
  return status;
}

// Some file systems (FUSE without a page cache, 9p) know no shared mappings.
void* map_file(size_t size, int descriptor) {
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
  return data != MAP_FAILED ? data : ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
}

// From where the descriptor stands; fewer bytes where the file ends.
std::string read_all(int descriptor, uint64_t size, const std::filesystem::path& path) {
  std::string text(size, '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = ::read(descriptor, text.data() + done, text.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_input(path.string(), "cannot read: {}", std::strerror(errno));
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  text.resize(done);
  return text;
}

std::string read_bounded(const std::filesystem::path& path, const Descriptor& descriptor,
                         const struct stat& status, uint64_t limit_bytes) {
  if (static_cast<uint64_t>(status.st_size) > limit_bytes)
    fail_input(path.string(), "file is {} bytes, more than the {} allowed here", status.st_size,
               limit_bytes);
  return read_all(descriptor.fd, static_cast<uint64_t>(status.st_size), path);
}

}  // namespace

std::optional<FileStamp> file_stamp(const std::filesystem::path& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  return stamp_of(status);
}

bool is_settled(const FileStamp& stamp) {
  // Clocks of file systems tick every few milliseconds, those of FAT every two seconds.
  constexpr int64_t kClockTick_ns = 2'000'000'000;
  using namespace std::chrono;
  const int64_t now_ns = duration_cast<nanoseconds>(system_clock::now().time_since_epoch()).count();
  return now_ns - std::max(stamp.modified_ns, stamp.changed_ns) > kClockTick_ns;
}

struct MappedFile::Mapping {
  Descriptor descriptor;
  FileStamp stamp;
  std::span<const std::byte> bytes;
  std::optional<MappedRange> range;

  ~Mapping() {
    range.reset();
    if (!bytes.empty()) ::munmap(const_cast<std::byte*>(bytes.data()), bytes.size());
  }
};

MappedFile::MappedFile() = default;
MappedFile::~MappedFile() = default;
MappedFile::MappedFile(MappedFile&& other) noexcept = default;
MappedFile& MappedFile::operator=(MappedFile&& other) noexcept = default;

MappedFile::MappedFile(const std::filesystem::path& path)
    : path_(path), mapping_(std::make_unique<Mapping>()) {
  const struct stat status = open_regular(path, mapping_->descriptor);
  mapping_->stamp = stamp_of(status);
  const size_t size = mapping_->stamp.size;
  if (size == 0) return;
  void* data = map_file(size, mapping_->descriptor.fd);
  if (data == MAP_FAILED) fail_input(path.string(), "cannot map: {}", std::strerror(errno));
  mapping_->bytes = {static_cast<const std::byte*>(data), size};
  const Error loss(ErrorCode::input, path.string(),
                   "became shorter or unreadable while it was in use");
  mapping_->range.emplace(mapping_->bytes, loss.what());
}

std::span<const std::byte> MappedFile::bytes() const {
  return mapping_ ? mapping_->bytes : std::span<const std::byte>();
}

int MappedFile::descriptor() const {
  TYTO_ASSERT(mapping_ != nullptr);
  return mapping_->descriptor.fd;
}

const FileStamp& MappedFile::stamp() const {
  TYTO_ASSERT(mapping_ != nullptr);
  return mapping_->stamp;
}

FileStamp MappedFile::stamp_now() const {
  struct stat status = {};
  if (::fstat(descriptor(), &status) != 0)
    fail_input(path_.string(), "cannot stat: {}", std::strerror(errno));
  return stamp_of(status);
}

void release_mapped_pages(std::span<const std::byte> bytes) {
  if (loss_of(bytes) == nullptr) return;
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const uintptr_t first = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t from = round_up(first, page);
  const uintptr_t to = (first + bytes.size()) / page * page;
  if (from < to) (void)::madvise(reinterpret_cast<void*>(from), to - from, MADV_DONTNEED);
}

bool is_there(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

std::string read_text_file(const std::filesystem::path& path, uint64_t limit_bytes) {
  Descriptor descriptor;
  return read_bounded(path, descriptor, open_regular(path, descriptor), limit_bytes);
}

std::string read_replaceable_file(const std::filesystem::path& path, uint64_t limit_bytes) {
  Descriptor descriptor;
  return read_bounded(path, descriptor, open_replaceable(path, descriptor), limit_bytes);
}

SystemText read_system_text(const std::filesystem::path& path, size_t limit_bytes) {
  Descriptor descriptor;
  descriptor.fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor.fd < 0) return {"", errno};
  SystemText result;
  std::array<char, 4096> piece;
  while (result.text.size() < limit_bytes) {
    const ssize_t got = ::read(descriptor.fd, piece.data(),
                               std::min(piece.size(), limit_bytes - result.text.size()));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return {"", errno};
    if (got == 0) break;
    result.text.append(piece.data(), static_cast<size_t>(got));
  }
  result.text.erase(result.text.find_last_not_of(" \t\r\n") + 1);
  return result;
}

std::string read_last_lines(const std::filesystem::path& path, uint64_t limit_bytes) {
  Descriptor descriptor;
  const struct stat status = open_regular(path, descriptor);
  const auto size = static_cast<uint64_t>(status.st_size);
  const bool is_cut = size > limit_bytes;
  if (is_cut) ::lseek(descriptor.fd, static_cast<off_t>(size - limit_bytes), SEEK_SET);
  std::string text = read_all(descriptor.fd, std::min(size, limit_bytes), path);
  if (is_cut) text.erase(0, text.find('\n') + 1);
  return text;
}

void append_line(const std::filesystem::path& path, std::string_view line, Readers readers) {
  TYTO_ASSERT(line.find('\n') == std::string_view::npos);
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  if (error) fail_input(path.parent_path().string(), "cannot be made: {}", error.message());
  Descriptor file;
  file.fd = ::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC,
                   readers == Readers::owner ? 0600 : 0644);
  if (file.fd < 0) fail_input(path.string(), "cannot be written: {}", std::strerror(errno));
  const off_t size = ::lseek(file.fd, 0, SEEK_END);
  char last = '\n';
  if (size > 0 && ::pread(file.fd, &last, 1, size - 1) != 1) last = '\n';
  const std::string text = fmt::format("{}{}\n", last == '\n' ? "" : "\n", line);
  const ssize_t written = ::write(file.fd, text.data(), text.size());
  if (written != static_cast<ssize_t>(text.size()))
    fail_input(path.string(), "cannot be written: {}",
               written < 0 ? std::strerror(errno) : "no space left");
}

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
