// What is said of a command line that does not fit: the argument, what is wrong with it, and what
// was probably meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "shell/command_line.h"

namespace tyto {

std::string see_help(const CommandPath& path);  // none of a command without a name

// The text that a command takes as an argument, as far as it was given.
struct GivenText {
  std::string kind = {};   // "prompt"; empty: the command takes no text, or none was given
  std::string words = {};  // the first of them
};

// What `path`'s command has no place for, in the order given.
Error unexpected(const CommandPath& path, const std::vector<std::string>& arguments,
                 const GivenText& text = {});

Error missing_command(const CommandPath& path);
Error not_allowed(const Flag& flag, const OneOf& allowed, const std::string& value);

// A short flag with its value would be read out of "-ngl" and "-temp".
void refuse_long_flags_behind_one_dash(const CommandPath& path,
                                       const std::vector<std::string>& arguments);

}  // namespace tyto
