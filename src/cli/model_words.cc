#include "cli/model_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/spelling.h"
#include "cli/prompt.h"
#include "model/stores/local_models.h"
#include "model/stores/recommended_models.h"
#include "model/stores/stores.h"
#include "shell/command_line.h"
#include "shell/terminal.h"

namespace tyto {
namespace {

constexpr const char* kBlanks = " \t\r\n";

bool has_blanks(const std::string& word) {
  return word.find_first_of(kBlanks) != std::string::npos;
}

bool is_path(const std::string& word) {
  return word.starts_with('/') || word.starts_with("./") || word.starts_with("../");
}

std::string in_quotes(const std::string& text) {
  const std::string word = shell_word(text);
  return word.starts_with('\'') ? word : "'" + word + "'";
}

// The error of find_model() gets the way to say that the word is a prompt.
void check_model(const GivenWords& given, const WordMeaning& meaning) try {
  find_model(meaning.model);
} catch (Error& error) {
  if (given.prompt_flag.empty() && !meaning.prompt)
    error.hint += fmt::format("; as a prompt: {} -p {}", given.command, in_quotes(meaning.model));
  throw;
}

// Which model a short name means.
void note_whole_name(const std::string& word) {
  const Listing here = local_models();
  const ModelNames names(here.models);
  const std::vector<const LocalModel*> found = names.find(word);
  if (found.size() != 1 || names.has(word)) return;
  note(fmt::format("{} is {} ({})", word, names.shortest(*found.front()), found.front()->store));
}

std::string shipped_name() {
  const auto folder = shipped_model();
  return folder ? folder->filename().string() : "the shipped model";
}

}  // namespace

bool can_only_be_a_model(const std::string& word) {
  if (word.ends_with(".gguf")) return true;
  if (word.empty() || has_blanks(word)) return false;
  if (is_path(word)) return word.size() > 3;
  const auto is_of_a_name = [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("._-/:").find(static_cast<char>(c)) != std::string_view::npos;
  };
  const size_t mark = word.find_first_of("/:");
  return mark != std::string::npos && mark > 0 && word.find_last_of("/:") + 1 < word.size() &&
         std::all_of(word.begin(), word.end(), is_of_a_name);
}

WordMeaning meaning_of(const GivenWords& given,
                       const std::function<bool(const std::string&)>& is_model) {
  std::vector<std::string> rest = given.words;
  WordMeaning meaning;
  if (!rest.empty() && !given.has_model && rest.front() != "-") {
    const bool is_here = is_model(rest.front());
    meaning.is_absent =
        !is_here && (can_only_be_a_model(rest.front()) || !recommended_names(rest.front()).empty());
    if (is_here || meaning.is_absent) {
      meaning.model = rest.front();
      rest.erase(rest.begin());
    }
  }
  if (rest.empty()) return meaning;
  if (!given.prompt_flag.empty())
    throw Error(ErrorCode::usage, "",
                fmt::format("PROMPT and {} exclude each other", given.prompt_flag),
                fmt::format("see {} --help", given.command));
  if (rest.size() > 1)
    throw Error(ErrorCode::usage, "",
                fmt::format("{0} takes one prompt; put it in quotes: {0} {1}{2}", given.command,
                            meaning.model.empty() ? "" : shell_word(meaning.model) + " ",
                            in_quotes(joined(rest, " "))));
  meaning.prompt = rest.front();
  meaning.is_guess = !given.has_model && meaning.model.empty() && !rest.front().empty() &&
                     rest.front() != "-" && !has_blanks(rest.front());
  return meaning;
}

void settle_words(CommandLine& command, PromptFlags& prompt, ModelFlags& model) {
  GivenWords given{.command = "tyto " + command.name,
                   .words = prompt.words,
                   .has_model = command.is_given("--model")};
  for (const char* flag : {"--prompt", "--file"})
    if (command.is_given(flag)) given.prompt_flag = flag;
  const WordMeaning meaning = meaning_of(given, is_local_model);
  if (!meaning.model.empty()) {
    check_model(given, meaning);
    note_whole_name(meaning.model);
    model.model = meaning.model;
    command.flag("--model").given = true;
  }
  prompt.text = meaning.prompt.value_or("");
  command.flag("text").given = meaning.prompt.has_value();
  if (meaning.is_guess)
    note(fmt::format("prompt {} to {} (no model has that name)", in_quotes(prompt.text),
                     shipped_name()));
}

void add_model_word(CommandLine& command) {
  const Flag& model = command.flag("--model");
  const bool is_list = takes_several(model.target);
  command.add({{is_list ? "models" : "model", model.target, model.value,
                is_list ? "the same as -m, one or several" : "the same as -m",
                Rules{.excludes = {"--model"}}}});
}

}  // namespace tyto
