// How --help looks: one column of flags, one of meanings, grouped by what they are about.
#pragma once

#include <CLI/App.hpp>
#include <string>

namespace tyto {

// Broken into lines of at most 100 columns; those after the first begin with `indent` spaces.
std::string wrapped(const std::string& text, size_t indent);

// For the program and all its commands.
void use_help_layout(CLI::App& app);

}  // namespace tyto
