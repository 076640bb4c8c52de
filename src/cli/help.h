// How --help looks: one column of flags, one of meanings, grouped by what they are about.
#pragma once

#include <string>
#include <vector>

namespace tyto {

struct CommandLine;
struct Flag;

// Broken into lines of at most 100 columns; those after the first begin with `indent` spaces.
std::string wrapped(const std::string& text, size_t indent);

// What pages of the manual have in common with --help.
std::string flag_names(const Flag& flag);    // "-m, --model"
std::string flag_value(const Flag& flag);    // "MODEL"; empty: it takes none
std::string flag_meaning(const Flag& flag);  // with its default, and the values if they are many
std::vector<std::string> flag_groups(const CommandLine& command);     // the plain one first
std::string usage_line(const std::vector<const CommandLine*>& path);  // "tyto run [OPTIONS]"

// Of the last command of `path`, which begins with the program.
std::string help_text(const std::vector<const CommandLine*>& path);

}  // namespace tyto
