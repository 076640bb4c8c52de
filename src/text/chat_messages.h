// What is said in a conversation, as OpenAI's "messages" carry it.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace tyto {

// A function that the model wants to have called.
struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON text, as the model wrote it
};

struct ChatMessage {
  std::string role;                       // "system", "user", "assistant", "tool", ...
  std::string content = {};               // may be empty beside tool calls
  std::string reasoning_content = {};     // an assistant's thoughts before it answered
  std::string name = {};                  // who speaks, or which tool answers
  std::string tool_call_id = {};          // which call a tool answers
  std::vector<ToolCall> tool_calls = {};  // of an assistant
};

// Reads an array of messages as clients of OpenAI and Ollama write them. A field that we know and
// that has a wrong type is an input Error naming it, content other than text an unsupported one;
// other fields are ignored.
std::vector<ChatMessage> messages_from_json(const Json& array);

}  // namespace tyto
