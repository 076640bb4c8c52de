// The whole command line as data: what main() parses, and what help, manual pages and completions
// are made of.
#pragma once

namespace tyto {

struct CommandLine;

void define_program(CommandLine& program);

}  // namespace tyto
