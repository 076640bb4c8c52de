// How --help looks: one column of flags, one of meanings, grouped by what they are about.
#pragma once

#include <string>
#include <vector>

namespace tyto {

struct CommandLine;

// Broken into lines of at most 100 columns; those after the first begin with `indent` spaces.
std::string wrapped(const std::string& text, size_t indent);

// Of the last command of `path`, which begins with the program.
std::string help_text(const std::vector<const CommandLine*>& path);

}  // namespace tyto
