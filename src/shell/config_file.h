// Flags from a file: $XDG_CONFIG_HOME/tyto/config.toml. A table is a command, a key is a flag
// without its dashes, and the same rules hold as on the command line, which goes first.
// docs/deploy.md is the user's side.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace tyto {

struct CommandLine;

struct ConfigFlags {
  std::string config;  // the file; "none": none is read; empty: the user's, where there is one
};
// --config. From now on parse() reads the file for the command.
void add_config_flag(CommandLine& command, ConfigFlags& flags);

struct ConfigChanges {
  std::vector<std::string> taken;         // flags that now have the file's value: "--queue"
  std::vector<std::string> need_restart;  // flags whose values differ, and are as they were
};
// Reads the file again and takes over those of `may_change`; what is gone from the file has its
// default again. `define` is what made the command. `take` is called when the flags have their new
// values, and puts them to use. An Error, also one that `take` throws, leaves the flags as they
// were.
ConfigChanges reload_config(CommandLine& command, void (*define)(CommandLine&),
                            const std::vector<std::string>& may_change,
                            const std::function<void()>& take);

}  // namespace tyto
