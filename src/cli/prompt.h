// A prompt from the command line, as run and profile take it.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

#include "cli/flags.h"

namespace tyto {

struct PromptFlags {
  std::string prompt;
  std::string prompt_file;
  bool raw = false;
  ChatFlags chat;
  bool given = false;  // -p '' too
};
void add_prompt_flags(CLI::App& command, PromptFlags& flags);
void check_prompt_given(const PromptFlags& flags, const std::string& command);

// Template and tokenizer are timed where the engine's trace is recording.
std::vector<Token> prompt_tokens(const PromptFlags& flags, Engine& engine);

}  // namespace tyto
