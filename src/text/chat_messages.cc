#include "text/chat_messages.h"

#include "base/error.h"
#include "base/printable.h"

namespace tyto {
namespace {

// Parts are joined by line breaks, as other servers do.
std::string text_of_parts(const Json& parts) {
  std::string text;
  parts.for_each_element([&](size_t index, const Json& part) {
    const Json type = part.at("type");
    if (type.as_string() != "text")
      throw Error(ErrorCode::unsupported, type.path(),
                  fmt::format("{} is not supported", printable_name(type.as_string())),
                  "Tyto reads text alone");
    if (index > 0) text += '\n';
    text += part.at("text").as_string();
  });
  return text;
}

std::string text_of_content(const Json& content) {
  if (content.is(Json::Type::array)) return text_of_parts(content);
  return std::string(content.as_string());
}

// OpenAI writes the arguments as JSON inside a string, Ollama as an object.
std::string text_of_arguments(const Json& arguments) {
  if (arguments.is(Json::Type::object)) return arguments.text();
  if (arguments.is(Json::Type::string)) return std::string(arguments.as_string());
  arguments.fail("expected JSON text or an object");
}

ToolCall tool_call_from_json(const Json& call) {
  if (const auto type = call.find("type"); type && type->as_string() != "function")
    fail_unsupported(type->path(), "a call of type {}; only \"function\" is supported",
                     printable_name(type->as_string()));
  const Json function = call.at("function");
  const auto arguments = function.find("arguments");
  return {call.string_or("id", ""), std::string(function.at("name").as_string()),
          arguments ? text_of_arguments(*arguments) : "{}"};
}

ChatMessage message_from_json(const Json& message) {
  ChatMessage result;
  result.role = message.at("role").as_string();
  result.reasoning_content = message.string_or("reasoning_content", "");
  result.name = message.string_or("name", message.string_or("tool_name", ""));  // Ollama's
  result.tool_call_id = message.string_or("tool_call_id", "");
  if (const auto calls = message.find("tool_calls"))
    calls->for_each_element(
        [&](size_t, const Json& call) { result.tool_calls.push_back(tool_call_from_json(call)); });
  const bool may_be_silent = !result.tool_calls.empty() || !result.reasoning_content.empty();
  if (!may_be_silent || message.find("content"))
    result.content = text_of_content(message.at("content"));
  return result;
}

}  // namespace

std::vector<ChatMessage> messages_from_json(const Json& array) {
  std::vector<ChatMessage> messages;
  array.for_each_element(
      [&](size_t, const Json& message) { messages.push_back(message_from_json(message)); });
  return messages;
}

}  // namespace tyto
