#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/round_up.h"

namespace tyto {
namespace {

struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

struct stat open_regular(const std::filesystem::path& path, Descriptor& descriptor) {
  // Non-blocking, or opening a pipe would wait for its writer; files do not care.
  descriptor.fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor.fd < 0) fail_input(path.string(), "cannot open: {}", std::strerror(errno));
  struct stat status = {};
  if (::fstat(descriptor.fd, &status) != 0)
    fail_input(path.string(), "cannot stat: {}", std::strerror(errno));
  if (!S_ISREG(status.st_mode)) fail_input(path.string(), "not a regular file");
  return status;
}

// Every mapping there is, so that release_mapped_pages() can tell a file's pages from memory whose
// contents would be lost.
struct Mappings {
  std::mutex mutex;
  std::map<const std::byte*, size_t> sizes;  // by address
};

Mappings& mappings() {
  static Mappings all;
  return all;
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  Descriptor descriptor;
  const struct stat status = open_regular(path, descriptor);
  size_ = static_cast<size_t>(status.st_size);
  if (size_ == 0) return;
  void* mapping = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor.fd, 0);
  if (mapping == MAP_FAILED) fail_input(path.string(), "cannot map: {}", std::strerror(errno));
  data_ = static_cast<const std::byte*>(mapping);
  const std::lock_guard lock(mappings().mutex);
  mappings().sizes[data_] = size_;
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  const std::lock_guard lock(mappings().mutex);
  mappings().sizes.erase(data_);
  ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      path_(std::move(other.path_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  return *this;
}

void release_mapped_pages(std::span<const std::byte> bytes) {
  const std::lock_guard lock(mappings().mutex);
  auto after = mappings().sizes.upper_bound(bytes.data());
  if (after == mappings().sizes.begin()) return;
  const auto& [begin, size] = *--after;
  if (bytes.data() + bytes.size() > begin + size) return;
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const uintptr_t first = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t from = round_up(first, page);
  const uintptr_t to = (first + bytes.size()) / page * page;
  if (from < to) (void)::madvise(reinterpret_cast<void*>(from), to - from, MADV_DONTNEED);
}

std::string read_text_file(const std::filesystem::path& path, uint64_t limit_bytes) {
  Descriptor descriptor;
  const struct stat status = open_regular(path, descriptor);
  if (static_cast<uint64_t>(status.st_size) > limit_bytes)
    fail_input(path.string(), "file is {} bytes, more than the {} allowed here", status.st_size,
               limit_bytes);
  std::string text(static_cast<size_t>(status.st_size), '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = ::read(descriptor.fd, text.data() + done, text.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_input(path.string(), "cannot read: {}", std::strerror(errno));
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  text.resize(done);
  return text;
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

void append_line(const std::filesystem::path& path, std::string_view line) {
  TYTO_ASSERT(line.find('\n') == std::string_view::npos);
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  if (error) fail_input(path.parent_path().string(), "cannot be made: {}", error.message());
  Descriptor file;
  file.fd = ::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
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

AtomicFile::AtomicFile(const std::filesystem::path& path)
    : path_(path), temporary_(path.string() + ".partial-" + std::to_string(::getpid())) {
  // The final rename would replace a device node or a pipe by a file.
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    fail_input(path.string(), "not a regular file");
  file_ = std::fopen(temporary_.c_str(), "wb");
  if (file_ == nullptr) fail_input(path.string(), "cannot create: {}", std::strerror(errno));
}

AtomicFile::~AtomicFile() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  std::error_code ignored;
  std::filesystem::remove(temporary_, ignored);
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  TYTO_ASSERT(file_ != nullptr);
  if (bytes.empty()) return;
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size())
    fail_input(path_.string(), "cannot write: {}", std::strerror(errno));
  position_ += bytes.size();
}

void AtomicFile::write(std::string_view text) {
  write(std::as_bytes(std::span(text)));
}

void AtomicFile::pad_to(uint64_t alignment) {
  TYTO_ASSERT(alignment > 0);
  static constexpr std::array<std::byte, 64> kZeros{};
  while (position_ % alignment != 0) {
    const uint64_t missing = alignment - position_ % alignment;
    write(std::span(kZeros).first(std::min<uint64_t>(missing, kZeros.size())));
  }
}

void AtomicFile::commit() {
  TYTO_ASSERT(file_ != nullptr);
  const bool flushed = std::fflush(file_) == 0 && ::fsync(::fileno(file_)) == 0;
  const int saved_errno = errno;
  if (!flushed) fail_input(path_.string(), "cannot flush: {}", std::strerror(saved_errno));
  std::fclose(std::exchange(file_, nullptr));
  std::error_code error;
  std::filesystem::rename(temporary_, path_, error);
  if (!error) return;
  std::error_code ignored;
  std::filesystem::remove(temporary_, ignored);
  fail_input(path_.string(), "cannot rename into place: {}", error.message());
}

}  // namespace tyto
