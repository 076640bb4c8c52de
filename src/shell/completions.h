// Scripts that complete Tyto's command line in shells, made of the same data as --help.
#pragma once

#include <string>

namespace tyto {

struct CommandLine;

// The script for "bash", "zsh" or "fish".
std::string completions(const std::string& shell, const CommandLine& program);

}  // namespace tyto
