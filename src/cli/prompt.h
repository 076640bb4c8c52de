// A prompt from the command line, as run and profile take it.
#pragma once

#include <string>
#include <vector>

#include "cli/flags.h"

namespace tyto {

class Engine;

struct PromptFlags {
  std::string prompt;
  std::string prompt_file;
  bool raw = false;
  ChatFlags chat;
};
void add_prompt_flags(CommandLine& command, PromptFlags& flags);
bool is_prompt_given(const CommandLine& command);  // -p '' too
void check_prompt_given(const CommandLine& command, const std::string& name);

// Template and tokenizer are timed where the engine's trace is recording.
std::vector<Token> prompt_tokens(const PromptFlags& flags, Engine& engine);

}  // namespace tyto
