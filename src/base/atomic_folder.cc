#include "base/atomic_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "base/error.h"

namespace tyto {
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
    throw Error(ErrorCode::usage, path_.string(), "is no name for a new folder",
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
          fmt::format("holds {}, which is no part of {} and would be lost", file, kind_.name),
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
