// What a line that begins with / does in a chat.
#pragma once

#include <string>
#include <string_view>

#include "cli/chat/conversation.h"
#include "shell/line_editor.h"

namespace tyto {

struct CommandLine;

// The flags that /set knows. They point into `settings`.
void add_chat_settings(CommandLine& command, ChatSettings& settings);

struct Chat {
  Conversation& conversation;
  ChatSettings& settings;
  bool is_over = false;
};

// An Error where it is no command, or cannot be done; then nothing has changed.
void run_chat_command(Chat& chat, const std::string& line);

std::string chat_command_list();  // one indented line for each, for the manual

// Completions of commands, and of what follows them.
Completions complete_chat_command(std::string_view before_cursor);

}  // namespace tyto
