#include "text/dialogue.h"

#include <fmt/format.h>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_value.h"
#include "base/utf8.h"

namespace tyto {
namespace {

constexpr uint64_t kMostDialogueBytes = 64 << 20;
constexpr const char* kSchema = "tyto-chat-1";
constexpr FileKind kSavedChat = {"a saved chat", "{\n  \"schema\": \"tyto-chat-"};

void add_message(const Json& json, const ChatMessage& message, Dialogue& dialogue) {
  std::vector<Exchange>& exchanges = dialogue.exchanges;
  const bool is_answered = exchanges.empty() || !exchanges.back().assistant.empty();
  if (message.content.empty()) json.at("content").fail("is empty");
  if (!message.tool_calls.empty()) json.fail("has tool calls, which a chat cannot continue");
  const bool is_system = message.role == "system" || message.role == "developer";
  if (is_system && dialogue.system.empty() && exchanges.empty())
    dialogue.system = message.content;
  else if (message.role == "user" && is_answered)
    exchanges.push_back({message.content, ""});
  else if (message.role == "assistant" && !is_answered)
    exchanges.back().assistant = message.content;
  else
    json.at("role").fail(fmt::format(
        "\"{}\" may not stand here; after a system message user and assistant take turns",
        printable_name(message.role)));
}

}  // namespace

std::vector<ChatMessage> messages_of(const Dialogue& dialogue, size_t first_exchange) {
  std::vector<ChatMessage> messages;
  if (!dialogue.system.empty()) messages.push_back({"system", dialogue.system});
  for (size_t i = first_exchange; i < dialogue.exchanges.size(); ++i) {
    const Exchange& exchange = dialogue.exchanges[i];
    messages.push_back({"user", exchange.user});
    if (!exchange.assistant.empty()) messages.push_back({"assistant", exchange.assistant});
  }
  return messages;
}

void save_dialogue(const Dialogue& dialogue, const std::string& path) {
  JsonValue json = {{"schema", kSchema}, {"messages", JsonValue::array()}};
  for (const ChatMessage& message : messages_of(dialogue))
    json["messages"].push_back(JsonValue{{"role", message.role}, {"content", message.content}});
  try {
    AtomicFile file(path, Replace::same_kind, kSavedChat);
    file.write(json.dump(2) + "\n");
    file.commit();
  } catch (const Error& error) {
    throw Error(error.code, "", error.what(), "name another file");  // there is no --force here
  }
}

Dialogue load_dialogue(const std::string& path) {
  const Json json = Json::parse(read_replaceable_file(path, kMostDialogueBytes), path);
  const Json schema = json.at("schema");
  if (schema.as_string() != kSchema)
    schema.fail(fmt::format("expected \"{}\", which /save writes", kSchema));
  json.refuse_repeated_names();
  const Json array = json.at("messages");
  const std::vector<ChatMessage> messages = messages_from_json(array);
  Dialogue dialogue;
  array.for_each_element(
      [&](size_t index, const Json& message) { add_message(message, messages[index], dialogue); });
  if (!dialogue.exchanges.empty() && dialogue.exchanges.back().assistant.empty())
    array.fail("ends with a message that has no answer");
  return dialogue;
}

}  // namespace tyto
