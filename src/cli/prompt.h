// A prompt from the command line, as run and profile take it.
#pragma once

#include <string>
#include <vector>

#include "cli/flags.h"

namespace tyto {

class ChatTemplate;
class Engine;
class Tokenizer;

struct PromptFlags {
  std::vector<std::string> words;  // the arguments; cli/model_words.h says what they mean
  std::string text;                // the one of them that is the prompt
  std::string prompt;
  std::string prompt_file;
  bool raw = false;
  ChatFlags chat;
};
void add_prompt_flags(CommandLine& command, PromptFlags& flags);
bool is_prompt_given(const CommandLine& command);  // -p '' too
// A model was named and no prompt, and nothing is piped into the program: people want to talk.
bool wants_chat(const CommandLine& command);
// Makes flags.prompt the prompt that was given, as an argument, with -p or -f, or through a pipe.
// None is a usage Error, an empty one an Error without --raw. Without --raw the line break at the
// end of a file or a pipe is left out.
void read_prompt(const CommandLine& command, PromptFlags& flags);

// As `flag` takes it, or as the argument "text", where "-" is what is piped into the program; that
// is read without any of them, too. Nothing at all is a usage Error that calls it `what`.
std::string given_text(const CommandLine& command, const std::string& flag,
                       const std::string& what = "text");

// With U+FFFD in place of bytes that are not UTF-8, and of NUL; a note says how many there were of
// `what`.
std::string as_text(const std::string& bytes, const std::string& what);

// Why a system message does not reach the model, or does not change its answers; empty: it may.
std::string why_system_is_idle(const Tokenizer& tokenizer, const ChatTemplate& chat_template);

// Says on stderr where a model without a chat template gets the prompt as it is, and where --system
// is idle.
void note_idle_chat_flags(const PromptFlags& flags, Engine& engine);

struct ModelPrompt {
  std::vector<Token> tokens;
  std::string chat = {};        // the template's text; empty where none made the prompt
  bool continues_text = false;  // the answer does, as Request has it
};

// Made from what read_prompt() found. Template and tokenizer are timed where the engine's trace is
// recording.
ModelPrompt model_prompt(const PromptFlags& flags, Engine& engine);

}  // namespace tyto
