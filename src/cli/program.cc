// The table of the commands, and what shells and man(1) read, made of the same data as --help.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "base/error.h"
#include "base/spelling.h"
#include "cli/commands.h"
#include "cli/prompt.h"
#include "cli/provenance.h"
#include "device/device.h"
#include "shell/command_line.h"
#include "shell/completions.h"
#include "shell/manual.h"
#include "shell/terminal.h"

namespace tyto {
namespace {

struct Command {
  const char* name;
  const char* summary;  // short enough for two columns
  void (*define)(CommandLine& command);
};

struct Group {
  const char* name;
  std::vector<Command> commands;
};

const std::vector<Group>& groups() {
  static const std::vector<Group> kGroups = {
      {"Use",
       {{"run", "answer one prompt", define_run},
        {"chat", "talk with a model", define_chat},
        {"serve", "serve an API and chat page", define_serve},
        {"models", "list the models here", define_models},
        {"pull", "download a model", define_pull}}},
      {"Look",
       {{"inspect", "show what a model is", define_inspect},
        {"plan", "estimate speed and memory", define_plan},
        {"doctor", "check this machine", define_doctor},
        {"devices", "list the CPU, GPU and NPU", define_devices},
        {"tokenize", "show the tokens of a text", define_tokenize},
        {"detokenize", "turn token ids into text", define_detokenize},
        {"template", "render a chat template", define_template},
        {"embed", "turn a text into a vector", define_embed}}},
      {"Measure",
       {{"bench", "measure tokens per second", define_bench},
        {"results", "list what bench measured", define_results},
        {"profile", "show where the time goes", define_profile},
        {"power", "measure watts and joules", define_power},
        {"perplexity", "score a model on a text", define_perplexity}}},
      {"Check",
       {{"verify", "test a device's answers", define_verify},
        {"diagnose", "find where results differ", define_diagnose},
        {"receipt", "check and sign receipts", define_receipt},
        {"eval", "write logits to a file", define_eval}}},
      {"Build",
       {{"quantize", "convert to another type", define_quantize},
        {"synth", "write a random model", define_synth},
        {"compile", "make NPU kernel images", define_compile},
        {"kernels", "manage NPU kernel images", define_kernels},
        {"cache", "keep weights packed", define_cache},
        {"completions", "print a shell's completion", define_completions},
        {"manual", "print a manual page", define_manual}}},
  };
  return kGroups;
}
// Their only word is a model: `tyto chat MODEL`. serve adds its own, since it is defined again when
// its configuration is read again.
constexpr const char* kTakeAModel[] = {"chat",   "inspect", "eval",   "perplexity", "bench",
                                       "verify", "plan",    "doctor", "compile",    "quantize"};

constexpr const char* kSummary =
    "run language models on this machine, and see which device did the work";
constexpr const char* kFooter =
    "Exit codes: 0 done; 1 bad input, failed device or cut JSON; 2 bad usage;\n"
    "3 --require not satisfied; 130 Ctrl-C.\n"
    "Try: tyto run 'Tell me a story about a fox who finds a lamp.'\n"
    "`tyto COMMAND --help` describes a command, `--help-all` all its options.\n\n"
    "A model (-m) is a GGUF file, a Hugging Face checkpoint folder, or a name that `tyto models` "
    "lists. Without -m, Tyto uses the model that it ships with. Only `tyto pull` downloads "
    "anything.\n\n"
    "`--json` prints JSON in place of text. `--json=FILE` writes JSON to FILE beside the text; a "
    "blank may stand for the = where FILE ends in .json or the command takes no arguments.";

}  // namespace

void define_program(CommandLine& program) {
  program.summary = kSummary;
  program.version = version_text();
  program.footer = kFooter;
  program.device_names =
      joined(device_table(), " ", [](const DeviceEntry& entry) { return entry.name; });
  for (const Group& group : groups())
    for (const Command& row : group.commands) {
      CommandLine& command = program.add_command(row.name, row.summary);
      command.group = group.name;
      row.define(command);
    }
  for (CommandLine& command : program.commands)
    if (std::find(std::begin(kTakeAModel), std::end(kTakeAModel), command.name) !=
        std::end(kTakeAModel))
      add_model_word(command);
}

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
