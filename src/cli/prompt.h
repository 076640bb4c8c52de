// A prompt from the command line, as run and profile take it.
#pragma once

#include <string>
#include <vector>

#include "cli/flags.h"

namespace tyto {

class Engine;

struct PromptFlags {
  std::string text;  // the argument
  std::string prompt;
  std::string prompt_file;
  bool raw = false;
  ChatFlags chat;
};
void add_prompt_flags(CommandLine& command, PromptFlags& flags);
bool is_prompt_given(const CommandLine& command);  // -p '' too
// Makes flags.prompt the prompt that was given, as an argument, with -p or -f, or through a pipe.
// None is a usage Error. Without --raw the line break at the end of a file or a pipe is left out.
void read_prompt(const CommandLine& command, PromptFlags& flags);

// As `flag` takes it, or as the argument "text", where "-" is what is piped into the program; that
// is read without any of them, too. Nothing at all is a usage Error that calls it `what`.
std::string given_text(const CommandLine& command, const std::string& flag,
                       const std::string& what = "text");

// Of what read_prompt() found. Template and tokenizer are timed where the engine's trace is
// recording.
std::vector<Token> prompt_tokens(const PromptFlags& flags, Engine& engine);

}  // namespace tyto
