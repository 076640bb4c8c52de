// How --help looks: one column of flags, one of meanings, grouped by what they are about.
#pragma once

#include <CLI/App.hpp>

namespace tyto {

// For the program and all its commands.
void use_help_layout(CLI::App& app);

}  // namespace tyto
