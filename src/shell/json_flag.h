// --json [FILE]: JSON on stdout in place of the text, or in a file beside the text.
//
// The word after --json is the file where it does not begin with a dash and either it can be no
// argument of the command (or -p or -f has given that argument), or it ends in ".json". --json=FILE
// names any file.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tyto {

struct CommandLine;
struct Flag;

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
