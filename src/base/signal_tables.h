// What a signal handler may look at: names of unfinished files and folders, and which file stands
// behind an address. The objects below enter themselves and leave again; the functions are
// async-signal-safe, on any thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace tyto {

// A file or folder that is removed when a signal ends the program while this object lives.
class PartialPath {
 public:
  explicit PartialPath(std::string path);
  ~PartialPath();
  PartialPath(const PartialPath&) = delete;
  PartialPath& operator=(const PartialPath&) = delete;

  const std::string& path() const { return path_; }

 private:
  friend struct SignalTables;
  std::string path_;
  PartialPath* older_ = nullptr;
};

// Bytes that are read from a file as they are touched.
class MappedRange {
 public:
  // `loss` is what is said when they cannot be read any more: one printable line.
  MappedRange(std::span<const std::byte> bytes, std::string loss);
  ~MappedRange();
  MappedRange(const MappedRange&) = delete;
  MappedRange& operator=(const MappedRange&) = delete;

 private:
  friend struct SignalTables;
  std::span<const std::byte> bytes_;
  std::string loss_;
  MappedRange* older_ = nullptr;
};

// Removes every PartialPath, the newest first, so that a folder is empty when its turn comes.
void remove_partial_paths() noexcept;

// What is said when these bytes cannot be read any more, or null where they lie in no MappedRange.
// It stays valid as long as the range does.
const char* loss_of(std::span<const std::byte> bytes) noexcept;

}  // namespace tyto
