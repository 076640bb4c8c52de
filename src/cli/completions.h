// Scripts that complete Tyto's command line in shells, made of the same data as --help.
#pragma once

#include <string>

namespace tyto {

struct CommandLine;

std::string bash_completions(const CommandLine& program);
std::string zsh_completions(const CommandLine& program);
std::string fish_completions(const CommandLine& program);

}  // namespace tyto
