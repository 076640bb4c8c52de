#include "cli/prompt.h"

#include "base/error.h"
#include "base/file.h"
#include "cli/command_line.h"
#include "engine/engine.h"
#include "text/chat_text.h"
#include "trace/span.h"

namespace tyto {
namespace {

constexpr uint64_t kMaxPromptBytes = 64 << 20;

std::string prompt_text(const PromptFlags& flags) {
  if (!flags.prompt_file.empty()) return read_text_file(flags.prompt_file, kMaxPromptBytes);
  return flags.prompt == "-" ? read_stdin() : flags.prompt;
}

}  // namespace

void add_prompt_flags(CommandLine& command, PromptFlags& flags) {
  command.add({
      {"-p,--prompt", &flags.prompt, "TEXT", "what to say; - reads stdin",
       Rules{.may_be_empty = true, .excludes = {"--file"}}},
      {"-f,--file", &flags.prompt_file, "FILE", "read the prompt from a file"},
      {"--raw", &flags.raw, "give the prompt as it is, without a chat template",
       Rules{.excludes = {"--system", "--chat-template"}}},
  });
  add_chat_flags(command, flags.chat);
}

bool is_prompt_given(const CommandLine& command) {
  return command.is_given("--prompt") || command.is_given("--file");
}

void check_prompt_given(const CommandLine& command, const std::string& name) {
  if (!is_prompt_given(command))
    throw Error(ErrorCode::usage, name, "no prompt", "give one with -p TEXT or -f FILE");
}

std::vector<Token> prompt_tokens(const PromptFlags& flags, Engine& engine) {
  const std::string text = prompt_text(flags);
  if (text.empty()) fail_input("prompt", "is empty");
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
    messages.push_back({"user", text});
    return render_chat(tokenizer, chat_template, messages, {}, flags.chat.special);
  };
  if (flags.raw) {
    Span span(trace, EventKind::host, tokenize_name);
    return tokenizer.encode(text, {.parse_special = flags.chat.special});
  }
  const ChatText chat = render();
  Span span(trace, EventKind::host, tokenize_name);
  return encode_chat(tokenizer, chat);
}

}  // namespace tyto
