// Where a result goes that the user wants in a file or as JSON. A file is made before the work
// begins, so that what may not be replaced or cannot be written is told at once; docs/files.md is
// the user's side.
//
// --json [FILE]: JSON on stdout in place of the text, or in a file beside the text. The word after
// --json is the file where it does not begin with a dash and either it can be no argument of the
// command (or -p or -f has given that argument), or it ends in ".json". --json=FILE names any file.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/atomic_file.h"

namespace tyto {

struct Flag;
struct CommandLine;

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

struct JsonFlag {
  std::optional<std::string> file = {};  // empty: stdout
  bool force = false;

  bool is_given() const { return file.has_value(); }
  bool is_for_stdout() const { return file && file->empty(); }
  std::string path() const { return file.value_or(""); }  // empty: no file is wanted
};

inline constexpr const char* kJsonMeaning = "print JSON instead of text, or write it to FILE";

Flag json_flag(JsonFlag& flag, const std::string& meaning = kJsonMeaning);
// With --force, for a command that writes no other file.
void add_json_flag(CommandLine& command, JsonFlag& flag, const std::string& meaning = kJsonMeaning);

// Prints the JSON and returns true, or writes it to the file and returns false: then the text for
// people is still wanted.
bool put_json(const JsonFlag& flag, std::string_view json);

}  // namespace tyto
