// Writes that never leave half a file, and that replace nothing by accident.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/signal_tables.h"

namespace tyto {

// What may stand where an output goes. An empty file may always, a file in use (base/file.h)
// never but for those that say so, and one of the standard streams only as Tyto's own state.
enum class Replace {
  same_kind,
  same_kind_read,  // and this command may have read it: what is read and written again
  any_kind,        // the user forces it
  own_state,       // what Tyto keeps for itself, reads and writes again
};

// Writes beside the target and renames on commit(); without commit() the target is untouched and
// nothing is left. Where the target is a link, the file it leads to is replaced and the link stays.
// A target that may not be replaced is an Error at once, and checked again by commit().
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path, Replace replace = Replace::same_kind,
                      const FileKind& kind = {});
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  void pad_to(uint64_t alignment);
  uint64_t position() const { return position_; }
  void commit();

 private:
  void check_target() const;
  void open_partial();

  std::filesystem::path path_;  // links followed
  Replace replace_;
  FileKind kind_;
  std::optional<PendingReplacement> replacement_;
  std::optional<PartialPath> partial_;  // what is written to, until it is the target
  std::FILE* file_ = nullptr;
  uint64_t position_ = 0;
};

// The last component's links followed, also to where there is nothing yet.
std::filesystem::path without_links(std::filesystem::path path);

// Where a target is written before it is renamed: beside it, and this process's own.
std::filesystem::path partial_path_of(const std::filesystem::path& target);

// Removes what killed processes left of a target. A writing process holds a lock on what it writes
// (lock_partial), so what is not locked has no owner.
void remove_left_over(const std::filesystem::path& target);
void lock_partial(int descriptor);

// A folder that appears whole or not at all.

// Which files such a folder is made of, by their paths below it. A folder that holds anything else
// is never replaced, not even by force: what is not ours would be lost.
struct FolderKind {
  std::string_view name;  // "a checkpoint"
  bool (*has)(std::string_view file);
};

// Written beside the target, which is exchanged for it by commit(): at any time there is the old
// folder or the new one. Where the target is a link, the folder it leads to is replaced.
class AtomicFolder {
 public:
  AtomicFolder(const std::filesystem::path& path, Replace replace, const FolderKind& kind);
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  // Where to write a file of the folder, "config.json" or "images/a.elf".
  std::filesystem::path file(const std::string& name);
  void commit();

 private:
  bool has_files() const;
  void check_target() const;

  std::filesystem::path path_;
  Replace replace_;
  FolderKind kind_;
  std::list<PartialPath> partial_;  // the folder beside the target, and what is in it
  int descriptor_ = -1;             // which holds the lock
};

}  // namespace tyto
