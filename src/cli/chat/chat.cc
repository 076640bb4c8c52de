#include "cli/chat/chat.h"

#include <unistd.h>

#include <iostream>
#include <memory>
#include <optional>
#include <utility>

#include "base/environment.h"
#include "base/error.h"
#include "cli/auto_device.h"
#include "cli/chat/chat_commands.h"
#include "cli/chat/conversation.h"
#include "cli/chat/input_history.h"
#include "cli/commands.h"
#include "engine/engine.h"
#include "shell/command_line.h"
#include "shell/line_editor.h"
#include "shell/quiet_terminal.h"
#include "shell/terminal.h"

namespace tyto {
namespace {

// What the user types: on a terminal with an editor and its history, else line by line.
class ChatInput {
 public:
  ChatInput() {
    if (!LineEditor::is_possible()) return;
    editor_.emplace(complete_chat_command);
    try {
      history_.emplace(state_folder() / "chat_history");
      for (const std::string& line : history_->read()) editor_->remember(line);
    } catch (const Error& error) {
      give_history_up(error);
    }
  }

  bool is_person() const { return editor_.has_value(); }

  TypedLine read() {
    if (!editor_) return read_plain();
    forget_interrupts();
    TypedLine line = editor_->read();
    if (line.kind == TypedLine::Kind::line) remember(line.text);
    return line;
  }

 private:
  static TypedLine read_plain() {
    if (::isatty(STDIN_FILENO) != 0) std::cerr << "> " << std::flush;
    TypedLine line;
    if (std::getline(std::cin, line.text)) line.kind = TypedLine::Kind::line;
    forget_interrupts();  // while a line was being typed, which stays
    return line;
  }

  void remember(const std::string& line) {
    if (!InputHistory::is_kept(line)) return;
    editor_->remember(line);
    try {
      if (history_) history_->add(line);
    } catch (const Error& error) {
      give_history_up(error);
    }
  }

  void give_history_up(const Error& error) {
    history_.reset();
    tell(error);
    tell("What is typed will not be remembered after this chat.");
  }

  std::optional<LineEditor> editor_;
  std::optional<InputHistory> history_;
};

void take(Chat& chat, const TypedLine& line) {
  const std::string& text = line.text;
  if (line.kind == TypedLine::Kind::interrupted) {
    if (text.empty()) tell("Ctrl-D or /exit leaves, /help lists the commands.");
  } else if (text.starts_with('/')) {
    try {
      run_chat_command(chat, text);
    } catch (const Error& error) {
      if (error.code == ErrorCode::require) throw;
      tell(error);
    }
  } else if (text.find_first_not_of(" \t\n") != std::string::npos) {
    chat.conversation.say(text);
  }
}

}  // namespace

void talk(ChatCommandFlags& flags) {
  auto grammar = read_grammar(flags.grammar);  // before any work
  PromptCache prompt_cache(flags.prompt_cache);
  std::optional<QuietTerminal> quiet(std::in_place);
  settle_device(flags.engine);
  Engine engine(engine_options(flags.engine), progress_bar());
  prompt_cache.load(engine, flags.engine);
  Conversation conversation(engine, flags, std::move(grammar));
  quiet.reset();  // before the editor looks at the terminal
  ChatInput input;
  catch_interrupts();
  tell(conversation.greeting());
  Chat chat{conversation, flags.settings};
  while (!chat.is_over) {
    const TypedLine line = input.read();
    if (line.kind == TypedLine::Kind::end) break;
    take(chat, line);
  }
  end_answer_on_terminal();
  prompt_cache.save(engine, conversation.last_tokens());
  // A person has seen it.
  if (conversation.failed() > 0 && !input.is_person())
    fail_input("chat", "{} of {} turns failed", conversation.failed(), conversation.turns());
}

void define_chat(CommandLine& command) {
  ChatCommandFlags& flags = command.values<ChatCommandFlags>();
  add_chat_flags(command, flags.chat);
  add_engine_flags(command, flags.engine);
  add_chat_settings(command, flags.settings);
  add_grammar_flags(command, flags.grammar);
  add_speculation_flags(command, flags.speculation);
  add_prompt_cache_flags(command, flags.prompt_cache);
  command.footer =
      "/help lists the commands inside a chat. Answers go to stdout, the rest to stderr.\n\n"
      "Commands inside a chat:\n" +
      chat_command_list() +
      "\nOn a terminal, lines are edited with the usual keys and kept for the next chat "
      "(docs/chat.md).\n\nExamples:\n"
      "  tyto chat\n"
      "  tyto chat -m Qwen/Qwen2.5-0.5B-Instruct --context-shift";
  command.first = {"--model",       "--system",  "--tokens",        "--temp",
                   "--seed",        "--stop",    "--device",        "--context",
                   "--threads",     "--kv-type", "--lora",          "--draft",
                   "--json-schema", "--require", "--context-shift", "--verbose"};
  command.run = [&flags] { talk(flags); };
}

}  // namespace tyto
