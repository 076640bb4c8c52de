// Pages of the manual, made of the same data as --help.
#pragma once

#include <string>
#include <vector>

namespace tyto {

struct CommandLine;

using CommandPath = std::vector<const CommandLine*>;  // the program, its command, the one below it

// The program, then every command, each followed by those below it.
std::vector<CommandPath> all_commands(const CommandLine& program);

std::string command_words(const CommandPath& path);  // "kernels list"
std::string page_name(const CommandPath& path);      // "tyto-kernels-list"

// For man(1), in roff: `tyto manual run | man -l -`.
std::string manual_page(const CommandPath& path);

}  // namespace tyto
