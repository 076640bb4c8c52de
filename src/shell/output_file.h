// A file that the user named for a result. It is made before the work begins, so that what may not
// be replaced or cannot be written is told at once; docs/files.md is the user's side.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/atomic_file.h"

namespace tyto {

struct Flag;

// --force, for a command that writes files the user names with `outputs`; docs/files.md.
Flag force_flag(bool& force, const std::vector<std::string>& outputs);

inline Replace replacing(bool force) {
  return force ? Replace::any_kind : Replace::same_kind;
}

class OutputFile {
 public:
  OutputFile(const std::string& path, const FileKind& kind, bool force);  // no path: none is wanted
  ~OutputFile();  // says "wrote FILE" on stderr, where it did: behind what the command has to say

  bool is_wanted() const { return file_.has_value(); }
  void write(std::string_view text);  // whole; it is there afterwards

 private:
  const std::string path_;
  std::optional<AtomicFile> file_;
  bool is_written_ = false;
};

}  // namespace tyto
