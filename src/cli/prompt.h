// A prompt from the command line, as run and profile take it, and which word of a command line
// names the model: `tyto run MODEL PROMPT`, as people type it who come from Ollama.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/flags.h"

namespace tyto {

class ChatTemplate;
class Engine;
class Tokenizer;
struct CommandLine;

struct PromptFlags {
  std::vector<std::string> words;  // the arguments; meaning_of() says what they mean
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

struct GivenWords {
  std::string command;             // "tyto run"
  std::vector<std::string> words;  // in the order given
  bool has_model = false;          // -m names it
  std::string prompt_flag = {};    // "--prompt" or "--file", where one was given
};

struct WordMeaning {
  std::string model = {};  // empty: no word names one
  bool is_absent = false;  // the word is plainly a model's name, and the model is not here
  std::optional<std::string> prompt = {};  // none: no word is one
  bool is_guess = false;  // the prompt is one word, which might have been meant as a model
};

// With -m every word is the prompt. Else the first word is the model where `is_model` says so,
// where it can only be one, or where it names a recommended model. More than one word that is left
// is a usage Error.
WordMeaning meaning_of(const GivenWords& given,
                       const std::function<bool(const std::string&)>& is_model);

// It ends in .gguf, or has a slash or a colon and no character that a name never has.
bool can_only_be_a_model(const std::string& word);

// Puts the words where they belong: the flags then are as if they had been given with -m and -p. A
// note says so where one word was taken for the prompt, or for the short name of a model.
void settle_words(CommandLine& command, PromptFlags& prompt, std::string& model);

// For a command whose only word is a model, or several where -m may be given several times.
void add_model_word(CommandLine& command);

}  // namespace tyto
