// Files that shells and man(1) read, made of the same data as --help.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/program.h"
#include "shell/command_line.h"
#include "shell/completions.h"
#include "shell/manual.h"
#include "shell/terminal.h"

namespace tyto {
namespace {

struct CompletionFlags {
  std::string shell;
};

struct ManualFlags {
  std::vector<std::string> command;
  bool names = false;
};

void print_completions(const CompletionFlags& flags) {
  CommandLine program("tyto", "");
  define_program(program);
  print(completions(flags.shell, program));
}

void print_manual(const ManualFlags& flags) {
  CommandLine program("tyto", "");
  define_program(program);
  const std::string wanted = fmt::format("{}", fmt::join(flags.command, " "));
  std::string names;
  for (const CommandPath& path : all_commands(program)) {
    if (!flags.names && command_words(path) == wanted) return print(manual_page(path));
    if (path.size() > 1) names += command_words(path) + "\n";
  }
  if (!flags.names)
    throw Error(ErrorCode::usage, "manual", fmt::format("there is no command \"{}\"", wanted),
                "`tyto manual --names` lists them");
  print(names);
}

}  // namespace

void define_completions(CommandLine& command) {
  CompletionFlags& flags = command.values<CompletionFlags>();
  command.add({{"shell", &flags.shell, OneOf{"bash", "zsh", "fish"}, "the shell",
                Rules{.required = true}}});
  command.footer =
      "Prints a script for the shell to read. `make install` installs all three.\n\n"
      "Examples:\n  eval \"$(tyto completions bash)\"\n  source <(tyto completions zsh)\n"
      "  tyto completions fish | source";
  command.run = [&flags] { print_completions(flags); };
}

void define_manual(CommandLine& command) {
  ManualFlags& flags = command.values<ManualFlags>();
  command.add({{"command", &flags.command, "COMMAND",
                "a command, such as `run` or `kernels list` (default: the page of the program)"},
               {"--names", &flags.names, "list the commands that have a page",
                Rules{.excludes = {"command"}}}});
  command.footer =
      "The page is in roff, the format of man(1). `make install` installs all pages.\n\n"
      "Examples:\n  tyto manual run | man -l -\n  tyto manual kernels list > tyto-kernels-list.1";
  command.run = [&flags] { print_manual(flags); };
}

}  // namespace tyto
