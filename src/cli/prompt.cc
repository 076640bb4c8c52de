#include "cli/prompt.h"

#include <fmt/format.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "cli/command_line.h"
#include "engine/engine.h"
#include "text/chat_text.h"
#include "trace/span.h"

namespace tyto {
namespace {

constexpr uint64_t kMaxPromptBytes = 64 << 20;

// Waiting for someone to type would look like work.
bool is_stdin_terminal() {
  return ::isatty(STDIN_FILENO) != 0;
}

std::string without_last_line_break(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

}  // namespace

void add_prompt_flags(CommandLine& command, PromptFlags& flags) {
  command.add({
      {"text", &flags.text, "TEXT", "what to say, in quotes; - reads stdin",
       Rules{.may_be_empty = true, .excludes = {"--prompt", "--file"}}},
      {"-p,--prompt", &flags.prompt, "TEXT", "the same, for a text that begins with a dash",
       Rules{.may_be_empty = true, .excludes = {"--file"}}},
      {"-f,--file", &flags.prompt_file, "FILE", "read the prompt from a file"},
      {"--raw", &flags.raw, "give the prompt as it is, without a chat template",
       Rules{.excludes = {"--system", "--chat-template"}}},
  });
  add_chat_flags(command, flags.chat);
}

bool is_prompt_given(const CommandLine& command) {
  return command.is_given("text") || command.is_given("--prompt") || command.is_given("--file");
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
  std::string prompt = flags.prompt_file.empty()
                           ? given_text(command, "--prompt", "prompt")
                           : read_text_file(flags.prompt_file, kMaxPromptBytes);
  flags.prompt = is_typed || flags.raw ? prompt : without_last_line_break(prompt);
  if (flags.prompt.empty()) fail_input("prompt", "is empty");
}

std::vector<Token> prompt_tokens(const PromptFlags& flags, Engine& engine) {
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
  if (flags.raw) {
    Span span(trace, EventKind::host, tokenize_name);
    return tokenizer.encode(flags.prompt, {.parse_special = flags.chat.special});
  }
  const ChatText chat = render();
  Span span(trace, EventKind::host, tokenize_name);
  return encode_chat(tokenizer, chat);
}

}  // namespace tyto
