// A folder that appears whole or not at all.
#pragma once

#include <filesystem>
#include <list>
#include <string>
#include <string_view>

#include "base/atomic_file.h"

namespace tyto {

// Which files such a folder is made of, by their paths below it. A folder that holds anything else
// is never replaced, whoever forces it: what is not ours would be lost.
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
