// One process at a time: an advisory lock on a file, for as long as it lives.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>

namespace tyto {

class FileLock {
 public:
  // Waits for whoever holds it; an Error when that takes longer than `patience`. The file is made
  // if need be, and stays: removing one that another process waits for would leave two owners.
  explicit FileLock(const std::filesystem::path& path,
                    std::chrono::milliseconds patience = std::chrono::minutes(1));
  // Or nothing, when somebody else holds it.
  static std::unique_ptr<FileLock> try_take(const std::filesystem::path& path);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  explicit FileLock(int descriptor) : descriptor_(descriptor) {}

  int descriptor_ = -1;
};

}  // namespace tyto
