// Which files this process reads and which it is about to replace. No file is ever both, by
// whatever path or link to it: the second of the two uses is an Error.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

namespace tyto {

// A file itself, whatever it is called. With the time it was made, because a deleted file's number
// is given to another; file systems that do not know it say 0.
struct FileId {
  uint64_t device = 0;
  uint64_t inode = 0;
  int64_t made_ns = 0;
  auto operator<=>(const FileId&) const = default;
};

// A regular file's, links followed. Nothing where there is none.
std::optional<FileId> file_id(int descriptor);
std::optional<FileId> file_id(const std::filesystem::path& path);

// From now on an input; `path` is for the Error.
void add_input(const FileId& id, const std::filesystem::path& path);

// Every file of a folder that something is read from: a model is its whole checkpoint.
void add_inputs_of(const std::filesystem::path& folder);

// Throws when the file is an input, or one of the standard streams.
void check_not_in_use(const std::filesystem::path& path);

// Throws when the file is one of the standard streams.
void check_no_standard_stream(const std::filesystem::path& path);

// That a file is about to be replaced, for as long as this lives.
class PendingReplacement {
 public:
  PendingReplacement() = default;
  explicit PendingReplacement(const std::filesystem::path& path);  // which is not in use
  ~PendingReplacement();
  PendingReplacement(const PendingReplacement&) = delete;
  PendingReplacement& operator=(const PendingReplacement&) = delete;

 private:
  std::optional<FileId> id_;  // none: there is no such file yet
};

// One process at a time: an advisory lock on a file, for as long as it lives.

class FileLock {
 public:
  // Waits until it is free; an Error when that takes longer than `patience`. The file is made
  // if need be, and stays: removing one that another process waits for would leave two owners.
  explicit FileLock(const std::filesystem::path& path,
                    std::chrono::milliseconds patience = std::chrono::minutes(1));
  // Null: another process holds it.
  static std::unique_ptr<FileLock> try_take(const std::filesystem::path& path);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  explicit FileLock(int descriptor) : descriptor_(descriptor) {}

  int descriptor_ = -1;
};

}  // namespace tyto
