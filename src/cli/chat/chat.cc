#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/environment.h"
#include "base/error.h"
#include "base/spelling.h"
#include "base/utf8.h"
#include "cli/chat/conversation.h"
#include "cli/commands.h"
#include "engine/engine.h"
#include "report/tables.h"
#include "shell/command_line.h"
#include "shell/line_editor.h"
#include "shell/terminal.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;

// What a line that begins with / does in a chat.
struct Chat {
  Conversation& conversation;
  ChatSettings& settings;
  bool is_over = false;
};

constexpr const char* kDefault = "default";

enum class Argument : uint8_t { none, text, file, setting };

struct ChatCommand {
  const char* name;
  const char* argument_name;  // in brackets: it may be left out
  Argument argument;
  const char* meaning;
  void (*run)(Chat& chat, const std::string& argument);

  bool needs_argument() const { return argument != Argument::none && argument_name[0] != '['; }
};

std::span<const ChatCommand> chat_commands();

// The flags that /set knows. They point into `settings`.
void add_chat_settings(CommandLine& command, ChatSettings& settings) {
  add_sampling_flags(command, settings.sampling);
  command.add("Chat",
              {{"--context-shift", &settings.context_shift,
                "when the context is full, drop the oldest exchanges and go on"},
               {"-v,--verbose", &settings.verbose, "show the whole receipt of each answer"}});
}

void print_table(const Table& table) {
  print_to_stderr(to_text(table, {.width = stderr_columns()}));
}

std::string exchanges_text(size_t count) {
  return count == 1 ? "1 exchange" : fmt::format("{} exchanges", count);
}

std::string did_you_mean(const std::string& typed, const std::vector<std::string>& names,
                         const std::string& otherwise) {
  const auto found = nearest(typed, names);
  return found ? fmt::format("did you mean {}?", *found) : otherwise;
}

void help(Chat&, const std::string&) {
  Table table{.id = "chat-commands", .title = "", .columns = {{"", false}, {"", false}}};
  for (const ChatCommand& command : chat_commands()) {
    std::string usage = command.name;
    if (command.argument != Argument::none) usage += std::string(" ") + command.argument_name;
    table.rows.push_back({{usage, command.meaning}});
  }
  table.notes = {
      "End a line with a backslash to continue in the next one. Pasted text is one message. Put a "
      "space before a message that begins with /.",
      "Ctrl-C stops an answer or discards the line; Ctrl-D leaves the chat."};
  print_table(table);
  end_answer_on_terminal();
}

void leave(Chat& chat, const std::string&) {
  chat.is_over = true;
}

void clear(Chat& chat, const std::string&) {
  chat.conversation.clear();
  tell(chat.conversation.dialogue().system.empty() ? "cleared"
                                                   : "cleared; the system message stays");
}

void system_message(Chat& chat, const std::string& text) {
  const Dialogue& dialogue = chat.conversation.dialogue();
  if (text.empty())
    return tell(dialogue.system.empty() ? "There is no system message." : dialogue.system);
  const char* done = text == "-" ? "removed" : dialogue.system.empty() ? "set" : "replaced";
  chat.conversation.set_system(text == "-" ? "" : text);
  tell(fmt::format("The system message is {}; the conversation goes on with {}.", done,
                   exchanges_text(dialogue.exchanges.size())));
}

void save(Chat& chat, const std::string& path) {
  const Dialogue& dialogue = chat.conversation.dialogue();
  save_dialogue(dialogue, path);
  tell(fmt::format("{} saved as {}", exchanges_text(dialogue.exchanges.size()), path));
}

void load(Chat& chat, const std::string& path) {
  Dialogue dialogue = load_dialogue(path);
  const size_t count = dialogue.exchanges.size();
  chat.conversation.replace(std::move(dialogue));
  tell(
      fmt::format("{} loaded from {}; this conversation is replaced", exchanges_text(count), path));
}

void check_something_was_said(const Chat& chat, const char* command) {
  if (chat.conversation.dialogue().exchanges.empty())
    throw Error(ErrorCode::usage, command, "nothing was said yet");
}

void retry(Chat& chat, const std::string&) {
  check_something_was_said(chat, "/retry");
  chat.conversation.answer_again();
}

void undo(Chat& chat, const std::string&) {
  check_something_was_said(chat, "/undo");
  tell(fmt::format("taken back: {}", printable_name(chat.conversation.undo())));
}

void statistics(Chat& chat, const std::string&) {
  tell(chat.conversation.statistics());
}

std::vector<std::string> setting_names(const CommandLine& settings) {
  std::vector<std::string> names;
  for (const Flag& flag : settings.flags) names.push_back(flag.name().substr(2));
  return names;
}

// What holds while nothing was set: the model's own, else Tyto's.
std::string value_in_force(const Flag& flag, const SamplerOptions& sampling) {
  const std::string name = flag.name();
  if (name == "--temp") return fmt::format("{}", sampling.temperature);
  if (name == "--top-k") return fmt::format("{}", sampling.top_k);
  if (name == "--top-p") return fmt::format("{}", sampling.top_p);
  if (name == "--seed") return fmt::format("{}", sampling.seed);
  return "none";
}

std::string shown_value(const Flag& flag, const SamplerOptions& sampling) {
  if (const auto* truth = std::get_if<bool*>(&flag.target)) return **truth ? "on" : "off";
  if (is_unlimited(flag)) return "-1";
  const std::string text = value_text(flag.target);
  return text.empty() ? value_in_force(flag, sampling) : text;
}

void show_settings(const std::vector<Flag>& flags, const SamplerOptions& sampling) {
  Table table{.id = "chat-settings",
              .title = "",
              .columns = {{"setting", false}, {"value", false}, {"", false}}};
  for (const Flag& flag : flags)
    table.rows.push_back({{flag.name().substr(2), shown_value(flag, sampling), flag.meaning}});
  print_table(table);
}

void give(const Flag& flag, const std::string& value) {
  if (auto* truth = std::get_if<bool*>(&flag.target); truth != nullptr && value != kDefault) {
    if (value != "on" && value != "off")
      throw Error(ErrorCode::usage, flag.name(),
                  fmt::format("\"{}\" is neither on nor off", value));
    **truth = value == "on";
    return;
  }
  if (value != kDefault) return set_flag(flag, {flag.name() + "=" + value});
  ChatSettings usual;
  CommandLine defaults("set", "");
  add_chat_settings(defaults, usual);
  assign(flag.target, defaults.flag(flag.name()).target);
}

void set(Chat& chat, const std::string& argument) {
  CommandLine settings("set", "");
  add_chat_settings(settings, chat.settings);
  const SamplerOptions& sampling = chat.conversation.sampling();
  if (argument.empty()) return show_settings(settings.flags, sampling);
  const size_t space = argument.find(' ');
  const std::string name = argument.substr(0, space);
  const std::vector<std::string> names = setting_names(settings);
  if (std::find(names.begin(), names.end(), name) == names.end())
    throw Error(ErrorCode::usage, "/set", fmt::format("there is no setting {}", name),
                did_you_mean(name, names, "/set shows all"));
  const Flag& flag = settings.flag("--" + name);
  if (space == std::string::npos) return show_settings({flag}, sampling);
  const std::string value = argument.substr(argument.find_first_not_of(' ', space));

  const ChatSettings before = chat.settings;
  try {
    give(flag, value);
    chat.conversation.use_settings();
  } catch (const Error& error) {
    chat.settings = before;
    std::string what = error.what();
    if (what.starts_with("--")) what.erase(0, 2);  // which no setting has here
    throw Error(error.code, "/set", what, "/set shows all settings");
  }
  tell(fmt::format("{} is {} now", name, shown_value(flag, sampling)));
}

constexpr ChatCommand kCommands[] = {
    {"/help", "", Argument::none, "list these commands (also /?)", help},
    {"/exit", "", Argument::none, "leave the chat (also /quit, /bye, Ctrl-D)", leave},
    {"/clear", "", Argument::none, "forget the conversation but keep the system message", clear},
    {"/system", "[TEXT]", Argument::text, "show or set the system message; - removes it",
     system_message},
    {"/save", "FILE", Argument::file, "write the conversation to a file", save},
    {"/load", "FILE", Argument::file, "continue a saved conversation", load},
    {"/retry", "", Argument::none, "answer the last message again, with a new seed", retry},
    {"/undo", "", Argument::none, "remove the last message and its answer", undo},
    {"/stats", "", Argument::none, "show the whole receipt of the last answer, and totals",
     statistics},
    {"/set", "[NAME VALUE]", Argument::setting,
     "show the settings or change one; \"default\" resets it", set},
};

std::span<const ChatCommand> chat_commands() {
  return kCommands;
}

const ChatCommand* find_command(std::string_view name) {
  if (name == "/quit" || name == "/bye") name = "/exit";  // as other programs call it
  if (name == "/?") name = "/help";
  const auto found = std::find_if(std::begin(kCommands), std::end(kCommands),
                                  [&](const ChatCommand& command) { return command.name == name; });
  return found == std::end(kCommands) ? nullptr : found;
}

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const ChatCommand& command : kCommands) names.emplace_back(command.name);
  return names;
}

// A folder that cannot be read has none.
std::vector<std::string> file_names(const std::string& folder, bool with_hidden) {
  std::vector<std::string> names;
  std::error_code error, ignored;
  for (fs::directory_iterator it(folder.empty() ? "." : folder, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if ((name.starts_with('.') && !with_hidden) || printable_line(name) != name) continue;
    names.push_back(name + (it->is_directory(ignored) ? "/" : ""));
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> names_that_set_knows() {
  ChatSettings unused;
  CommandLine settings("set", "");
  add_chat_settings(settings, unused);
  std::vector<std::string> names = setting_names(settings);
  for (std::string& name : names) name += ' ';
  return names;
}

std::vector<std::string> names_of_commands() {
  std::vector<std::string> names = command_names();
  for (std::string& name : names)
    if (find_command(name)->argument != Argument::none) name += ' ';
  return names;
}

// An Error where it is no command, or cannot be done; then nothing has changed.
void run_chat_command(Chat& chat, const std::string& line) {
  const size_t space = std::min(line.find_first_of(" \t\n"), line.size());
  const std::string name = line.substr(0, space);
  const size_t begin = std::min(line.find_first_not_of(" \t\n", space), line.size());
  const size_t end = line.find_last_not_of(" \t\n") + 1;
  const std::string argument = begin < end ? line.substr(begin, end - begin) : "";
  const ChatCommand* command = find_command(name);
  if (command == nullptr)
    throw Error(ErrorCode::usage, "", "unknown command " + printable_name(name),
                did_you_mean(name, command_names(), "/help lists them"));
  if (command->argument == Argument::none && !argument.empty())
    throw Error(ErrorCode::usage, name, "takes nothing more");
  if (command->needs_argument() && argument.empty())
    throw Error(ErrorCode::usage, name, fmt::format("needs a {}", command->argument_name),
                fmt::format("{} {}", name, command->argument_name));
  command->run(chat, argument);
}

// one indented line for each, for the manual
std::string chat_command_list() {
  std::string lines;
  for (const ChatCommand& command : kCommands)
    lines +=
        fmt::format("  {:<18}  {}\n", fmt::format("{} {}", command.name, command.argument_name),
                    command.meaning);
  return lines;
}

// Completions of commands, and of what follows them.
Completions complete_chat_command(std::string_view before_cursor) {
  if (!before_cursor.starts_with('/')) return {};
  const std::string before(before_cursor);
  const size_t space = before.find(' ');
  const ChatCommand* command = find_command(before.substr(0, space));
  Completions result;
  std::vector<std::string> names;
  if (space == std::string::npos) {
    names = names_of_commands();
  } else if (command != nullptr && command->argument == Argument::file) {
    const size_t begin = std::min(before.find_first_not_of(' ', space), before.size());
    result.from = std::max(begin, before.rfind('/') + 1);
    names = file_names(before.substr(begin, result.from - begin), before[result.from] == '.');
  } else if (command != nullptr && command->argument == Argument::setting) {
    result.from = space + 1;
    names = names_that_set_knows();
  }
  const std::string_view typed = before_cursor.substr(result.from);
  for (std::string& name : names)
    if (name.starts_with(typed)) result.choices.push_back(std::move(name));
  return result;
}

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

void talk(const CommandLine& command, ChatCommandFlags& flags) {
  PromptCache prompt_cache(flags.prompt_cache);
  std::optional<QuietTerminal> quiet(std::in_place);
  settle_engine(command, flags.engine);
  Engine engine(flags.engine.options, progress_bar());
  prompt_cache.load(engine, flags.engine.options);
  Conversation conversation(engine, flags);
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
  command.run = [&command, &flags] { talk(command, flags); };
}

}  // namespace tyto
