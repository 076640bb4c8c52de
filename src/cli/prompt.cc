#include "cli/prompt.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/file.h"
#include "base/spelling.h"
#include "base/utf8.h"
#include "engine/engine.h"
#include "engine/generate.h"
#include "model/stores/local_models.h"
#include "model/stores/recommended_models.h"
#include "model/stores/stores.h"
#include "shell/command_line.h"
#include "shell/terminal.h"
#include "text/chat_template.h"
#include "trace/trace.h"

namespace tyto {
namespace {

constexpr uint64_t kMaxPromptBytes = 64 << 20;

// Waiting for input would look like work.
bool is_stdin_terminal() {
  return ::isatty(STDIN_FILENO) != 0;
}

std::string without_last_line_break(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

struct Readable {
  std::string text;
  size_t replaced = 0;  // bytes
};

Readable readable(std::string_view bytes) {
  Readable result;
  while (!bytes.empty()) {
    const Utf8Head head = utf8_head(bytes);
    const bool is_text = head.kind == Utf8Head::Kind::valid && head.code_point != 0;
    result.text += is_text ? bytes.substr(0, head.bytes) : kReplacementCharacter;
    if (!is_text) result.replaced += head.bytes;
    bytes.remove_prefix(head.bytes);
  }
  return result;
}

void note_bytes(const std::string& what, size_t count, const char* one, const char* several) {
  if (count > 0)
    note(fmt::format("tyto: {}: {} byte{} not UTF-8 text and {}", what, count,
                     count == 1 ? " is" : "s are", count == 1 ? one : several));
}

// A model without a chat template gets the prompt as it is, but no system text, which it would not
// tell from the prompt.
bool lacks_template(const PromptFlags& flags, const Vocabulary& vocabulary) {
  return !flags.raw && vocabulary.chat_template.empty() && vocabulary.more_templates.empty() &&
         flags.chat.chat_template.empty() && flags.chat.system.empty();
}

void check_room(std::span<const Token> tokens, Engine& engine) {
  const uint32_t room = engine.pipeline().context(), most = engine.model().config.context;
  if (tokens.size() < room) return;
  throw Error(
      ErrorCode::input, "prompt",
      fmt::format("{} tokens leave no room for an answer in a context of {}", tokens.size(), room),
      room < most ? fmt::format("-c makes more room, up to {} with this model", most)
                  : "shorten it; this model has no longer context");
}

}  // namespace

void add_prompt_flags(CommandLine& command, PromptFlags& flags) {
  command.add({
      {"text", &flags.words, "[MODEL] [PROMPT]",
       "a local model, as with -m, and the prompt, in quotes; - reads it from stdin",
       Rules{.may_be_empty = true, .filled_by = {"--prompt", "--file"}}},
      {"-p,--prompt", &flags.prompt, "TEXT", "the prompt, which may begin with a dash",
       Rules{.may_be_empty = true, .excludes = {"--file"}}},
      {"-f,--file", &flags.prompt_file, "FILE", "read the prompt from a file; - reads stdin"},
      {"--raw", &flags.raw, "use no chat template: the model continues the text",
       Rules{.excludes = {"--system", "--chat-template"}}},
  });
  add_chat_flags(command, flags.chat);
}

bool is_prompt_given(const CommandLine& command) {
  return command.is_given("text") || command.is_given("--prompt") || command.is_given("--file");
}

bool wants_chat(const CommandLine& command) {
  return command.is_given("--model") && !is_prompt_given(command) && is_stdin_terminal();
}

std::string given_text(const CommandLine& command, const std::string& flag,
                       const std::string& what) {
  for (const std::string& name : {std::string("text"), flag}) {
    if (!command.is_given(name)) continue;
    const std::string& text = *std::get<std::string*>(command.flag(name).target);
    return text == "-" ? read_stdin() : text;
  }
  const std::string piped = is_stdin_terminal() ? "" : read_stdin();
  if (piped.empty())
    throw Error(ErrorCode::usage, "tyto " + command.name, "no " + what,
                fmt::format("give one: tyto {} 'Hello'", command.name));
  return piped;
}

void read_prompt(const CommandLine& command, PromptFlags& flags) {
  const bool is_typed = flags.prompt != "-" && flags.text != "-" &&
                        (command.is_given("text") || command.is_given("--prompt"));
  std::string prompt;
  if (command.is_given("text"))
    prompt = flags.text == "-" ? read_stdin() : flags.text;
  else if (!flags.prompt_file.empty())
    prompt = text_from(flags.prompt_file, kMaxPromptBytes);
  else
    prompt = given_text(command, "--prompt", "prompt");
  if (flags.raw)
    note_bytes("prompt", readable(prompt).replaced, "stays as it is", "stay as they are");
  else
    prompt = as_text(prompt, "prompt");
  flags.prompt = is_typed || flags.raw ? prompt : without_last_line_break(prompt);
  const bool is_blank = flags.prompt.find_first_not_of(" \t\r\n") == std::string::npos;
  if (is_blank && !flags.raw)
    throw Error(ErrorCode::usage, "tyto " + command.name, "the prompt is empty");
}

std::string as_text(const std::string& bytes, const std::string& what) {
  Readable result = readable(bytes);
  note_bytes(what, result.replaced, "was replaced", "were replaced");
  return std::move(result.text);
}

std::string why_system_is_idle(const Tokenizer& tokenizer, const ChatTemplate& chat_template) try {
  const ChatMessage user{"user", "x"};
  const std::string with = render_chat(tokenizer, chat_template, {{"system", "x"}, user}).text;
  if (with == render_chat(tokenizer, chat_template, {user}).text)
    return "The model's chat template has no place for a system message: it is left out.";
  if (tokenizer.vocabulary().ignores_system)
    return "By its own files, this model does not follow system messages: they change little.";
  return "";
} catch (const Error&) {
  return "";  // the prompt's own rendering says what the template refuses
}

void note_idle_chat_flags(const PromptFlags& flags, Engine& engine) {
  const Tokenizer& tokenizer = engine.tokenizer();
  if (lacks_template(flags, tokenizer.vocabulary()))
    note(
        "tyto: the model has no chat template, so it gets the prompt as it is (--chat-template "
        "names one)");
  if (flags.raw || flags.chat.system.empty()) return;
  const std::string why = why_system_is_idle(
      tokenizer, choose_chat_template(tokenizer.vocabulary(), flags.chat.chat_template,
                                      engine.model().path.string()));
  if (!why.empty()) note(why);
}

ModelPrompt model_prompt(const PromptFlags& flags, Engine& engine) {
  const Tokenizer& tokenizer = engine.tokenizer();
  Trace& trace = engine.trace();
  const uint16_t template_name = trace.name({.label = "chat template"});
  const uint16_t tokenize_name = trace.name({.label = "tokenize"});
  const auto render = [&] {
    Span span(trace, EventKind::host, template_name);
    const ChatTemplate chat_template = choose_chat_template(
        tokenizer.vocabulary(), flags.chat.chat_template, engine.model().path.string());
    std::vector<ChatMessage> messages;
    if (!flags.chat.system.empty()) messages.push_back({"system", flags.chat.system});
    messages.push_back({"user", flags.prompt});
    return render_chat(tokenizer, chat_template, messages, {}, flags.chat.special);
  };
  if (flags.raw || lacks_template(flags, tokenizer.vocabulary())) {
    Span span(trace, EventKind::host, tokenize_name);
    ModelPrompt prompt{
        encode_prompt(tokenizer, flags.prompt, {.parse_special = flags.chat.special})};
    check_room(prompt.tokens, engine);
    prompt.continues_text = has_text(tokenizer, prompt.tokens);
    return prompt;
  }
  ChatText chat = render();
  Span span(trace, EventKind::host, tokenize_name);
  std::vector<Token> tokens = encode_chat(tokenizer, chat);
  check_room(tokens, engine);
  return {std::move(tokens), std::move(chat.text)};
}

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

void settle_words(CommandLine& command, PromptFlags& prompt, std::string& model) {
  GivenWords given{.command = "tyto " + command.name,
                   .words = prompt.words,
                   .has_model = command.is_given("--model")};
  for (const char* flag : {"--prompt", "--file"})
    if (command.is_given(flag)) given.prompt_flag = flag;
  const WordMeaning meaning = meaning_of(given, is_local_model);
  if (!meaning.model.empty()) {
    check_model(given, meaning);
    note_whole_name(meaning.model);
    model = meaning.model;
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
