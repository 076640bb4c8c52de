// Conversations and JSON as values that templates compute with.
#pragma once

#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/chat_template.h"
#include "text/jinja_value.h"

namespace tyto {

class ChatValues {
 public:
  // Both must outlive it. Without a map texts stay as they are.
  ChatValues(jinja::Machine& machine, const TextMap& map) : machine_(machine), map_(map) {}

  // In the form that Hugging Face's templates expect: arguments of calls are objects, and what a
  // message does not have is not there.
  jinja::Value of_messages(const std::vector<ChatMessage>& messages) const;
  jinja::Value of_json(const Json& json) const;

 private:
  jinja::Value of_message(const ChatMessage& message) const;
  jinja::Value of_call(const ToolCall& call) const;
  jinja::Value of_arguments(std::string_view arguments) const;
  jinja::Value of_text(std::string_view text, TextKind kind = TextKind::text) const;

  jinja::Machine& machine_;
  const TextMap& map_;
};

}  // namespace tyto
