// Which word of a command line names the model, and which one is the prompt:
// `tyto run MODEL PROMPT`, as people type it who come from Ollama.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tyto {

struct CommandLine;
struct ModelFlags;
struct PromptFlags;

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
void settle_words(CommandLine& command, PromptFlags& prompt, ModelFlags& model);

// For a command whose only word is a model, or several where -m may be given several times.
void add_model_word(CommandLine& command);

}  // namespace tyto
