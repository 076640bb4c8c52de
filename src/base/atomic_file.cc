#include "base/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPartial = ".partial-";
constexpr int kMostLinks = 40;  // as many as Linux follows

bool begins_with(const fs::path& path, std::string_view beginning) {
  std::string text(beginning.size(), '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  return file && text == beginning;
}

bool is_partial_of(const std::string& name, const std::string& target) {
  const std::string start = target + std::string(kPartial);
  return name.starts_with(start) && name.size() > start.size() &&
         name.find_first_not_of("0123456789", start.size()) == std::string::npos;
}

bool is_held(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor < 0) return true;
  const bool is_free = ::flock(descriptor, LOCK_EX | LOCK_NB) == 0;
  ::close(descriptor);
  return !is_free;
}

}  // namespace

fs::path without_links(fs::path path) {
  std::error_code error;
  for (int i = 0; i < kMostLinks && fs::is_symlink(path, error); ++i) {
    const fs::path target = fs::read_symlink(path, error);
    if (error) break;
    path = path.parent_path() / target;  // an absolute target stands alone
  }
  return path;
}

fs::path partial_path_of(const fs::path& target) {
  return target.string() + std::string(kPartial) + std::to_string(::getpid());
}

void remove_left_over(const fs::path& target) {
  const fs::path folder = target.has_parent_path() ? target.parent_path() : ".";
  const std::string name = target.filename().string();
  std::error_code error, ignored;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (is_partial_of(it->path().filename().string(), name) && !is_held(it->path()))
      fs::remove_all(it->path(), ignored);
}

void lock_partial(int descriptor) {
  (void)::flock(descriptor, LOCK_EX | LOCK_NB);  // some file systems have no locks
}

AtomicFile::AtomicFile(const fs::path& path, Replace replace, const FileKind& kind)
    : path_(without_links(path)), replace_(replace), kind_(kind) {
  check_target();
  const bool may_be_read = replace_ == Replace::own_state || replace_ == Replace::same_kind_read;
  if (!may_be_read) replacement_.emplace(path_);
  remove_left_over(path_);
  open_partial();
}

// The final rename would replace a device node or a pipe by a file, too.
void AtomicFile::check_target() const {
  std::error_code ignored;
  if (!path_.has_filename()) fail_input(path_.string(), "names no file");
  const fs::file_status status = fs::status(path_, ignored);
  if (!fs::exists(status)) return;
  if (!fs::is_regular_file(status)) fail_input(path_.string(), "not a regular file");
  if (replace_ == Replace::own_state) return;
  if (replace_ == Replace::same_kind_read)
    check_no_standard_stream(path_);
  else
    check_not_in_use(path_);
  if (replace_ == Replace::any_kind || fs::file_size(path_, ignored) == 0) return;
  const bool is_known = !kind_.beginning.empty();
  if (is_known && begins_with(path_, kind_.beginning)) return;
  throw Error(
      ErrorCode::usage, path_.string(),
      is_known ? fmt::format("is there already, and is not {}", kind_.name) : "is there already",
      "--force replaces it; or name another file");
}

void AtomicFile::open_partial() {
  // Known before it is there: a signal may come between the two.
  partial_.emplace(partial_path_of(path_).string());
  const int descriptor =
      ::open(partial_->path().c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
             kind_.is_private ? 0600 : 0666);
  if (descriptor < 0 && errno == EEXIST)
    throw Error(ErrorCode::usage, path_.string(), "is being written already",
                "give each output a file of its own");
  if (descriptor < 0) fail_input(path_.string(), "cannot create: {}", std::strerror(errno));
  lock_partial(descriptor);
  file_ = ::fdopen(descriptor, "wb");
  TYTO_ASSERT(file_ != nullptr);
}

AtomicFile::~AtomicFile() {
  if (file_ != nullptr) std::fclose(file_);
  if (partial_) ::unlink(partial_->path().c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  TYTO_ASSERT(file_ != nullptr);
  if (bytes.empty()) return;
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) {
    const int saved_errno = errno;
    // The system meets the end of a file that became shorter where this process would be signalled.
    if (const char* loss = saved_errno == EFAULT ? loss_of(bytes) : nullptr)
      throw Error(ErrorCode::input, "", loss);
    fail_input(path_.string(), "cannot write: {}", std::strerror(saved_errno));
  }
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
  check_target();
  std::error_code error;
  fs::rename(partial_->path(), path_, error);
  if (error) fail_input(path_.string(), "cannot rename into place: {}", error.message());
  partial_.reset();
  replacement_.reset();
  std::fclose(std::exchange(file_, nullptr));
}

namespace {

namespace fs = std::filesystem;

// "folder/" names the folder, as "folder" does.
fs::path without_slash(const fs::path& path) {
  return path.has_filename() ? path : path.parent_path();
}

}  // namespace

AtomicFolder::AtomicFolder(const fs::path& path, Replace replace, const FolderKind& kind)
    : path_(without_links(without_slash(path))), replace_(replace), kind_(kind) {
  check_target();
  remove_left_over(path_);
  std::error_code error;
  if (path_.has_parent_path()) fs::create_directories(path_.parent_path(), error);
  const std::string& partial = partial_.emplace_back(partial_path_of(path_).string()).path();
  if (error || ::mkdir(partial.c_str(), 0777) != 0)
    fail_input(path_.string(), "cannot create: {}", error ? error.message() : std::strerror(errno));
  descriptor_ = ::open(partial.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor_ >= 0) lock_partial(descriptor_);
}

AtomicFolder::~AtomicFolder() {
  if (descriptor_ >= 0) ::close(descriptor_);
  std::error_code ignored;
  if (!partial_.empty()) fs::remove_all(partial_.front().path(), ignored);
}

bool AtomicFolder::has_files() const {
  std::error_code error;
  return fs::exists(path_, error) && !fs::is_empty(path_, error);
}

void AtomicFolder::check_target() const {
  std::error_code error;
  const fs::path name = path_.filename();
  if (name.empty() || name == "." || name == "..")  // a shell in it would lose its folder
    throw Error(ErrorCode::usage, path_.string(), "is not a name for a new folder",
                "call it by its own");
  if (!fs::exists(path_, error)) return;
  if (!fs::is_directory(path_, error))
    fail_input(path_.string(), "is there already, and no folder");
  if (replace_ == Replace::own_state || !has_files()) return;
  if (replace_ == Replace::same_kind)
    throw Error(ErrorCode::usage, path_.string(), "is there already, with files in it",
                "--force replaces it; or name another folder");
  for (fs::recursive_directory_iterator it(path_, error), end; !error && it != end;
       it.increment(error)) {
    check_not_in_use(it->path());
    const std::string file = it->path().lexically_relative(path_).string();
    if (!fs::is_directory(it->symlink_status(error)) && !kind_.has(file))
      throw Error(
          ErrorCode::usage, path_.string(),
          fmt::format("holds {}, which is not part of {} and would be lost", file, kind_.name),
          "name another folder, or move that file away");
  }
  if (error) fail_input(path_.string(), "cannot be looked through: {}", error.message());
}

fs::path AtomicFolder::file(const std::string& name) {
  TYTO_ASSERT(!partial_.empty());
  const fs::path root = partial_.front().path();
  const fs::path result = root / name;
  fs::path folder = root;
  for (const fs::path& part : fs::path(name).parent_path()) {
    folder /= part;
    std::error_code error;
    if (fs::exists(folder, error)) continue;
    partial_.emplace_back(folder.string());
    fs::create_directory(folder, error);
    if (error) fail_input(folder.string(), "cannot create: {}", error.message());
  }
  partial_.emplace_back(result.string());
  return result;
}

void AtomicFolder::commit() {
  TYTO_ASSERT(!partial_.empty());
  check_target();
  const std::string partial = partial_.front().path();
  const bool replaces = has_files();
  const unsigned flags = replaces ? RENAME_EXCHANGE : 0;
  if (::renameat2(AT_FDCWD, partial.c_str(), AT_FDCWD, path_.c_str(), flags) != 0) {
    const int saved_errno = errno;
    if (saved_errno == EINVAL)
      throw Error(ErrorCode::input, path_.string(), "this file system cannot exchange folders",
                  "name another folder, or delete this one");
    fail_input(path_.string(), "cannot rename into place: {}", std::strerror(saved_errno));
  }
  std::error_code ignored;
  if (replaces) fs::remove_all(partial, ignored);  // which is the old one now
  partial_.clear();
}

}  // namespace tyto
