#include "text/chat_values.h"

#include <cmath>

#include "base/error.h"
#include "text/jinja_machine.h"

namespace tyto {

using jinja::Value;

Value ChatValues::of_text(std::string_view text, TextKind kind) const {
  return jinja::keep(machine_, map_ ? map_(text, kind) : std::string(text));
}

Value ChatValues::of_json(const Json& json) const {
  constexpr double kTooLarge = 9.2e18;  // for an int64_t
  switch (json.type()) {
    case Json::Type::object: {
      jinja::Dict* dict = jinja::make_dict(machine_);
      json.for_each_member([&](std::string_view key, const Json& value) {
        jinja::assign(machine_, *dict, of_text(key, TextKind::word), of_json(value));
      });
      return dict;
    }
    case Json::Type::array: {
      jinja::List* list = jinja::make_list(machine_);
      json.for_each_element(
          [&](size_t, const Json& value) { jinja::push(machine_, *list, of_json(value)); });
      return list;
    }
    case Json::Type::string:
      return of_text(json.as_string());
    case Json::Type::integer:
      if (std::abs(json.as_double()) < kTooLarge) return json.as_int();
      return json.as_double();
    case Json::Type::number:
      return json.as_double();
    case Json::Type::boolean:
      return json.as_bool();
    case Json::Type::null:
      break;
  }
  return jinja::None{};
}

// Arguments of an earlier answer may have been cut off; the template then gets what there is.
Value ChatValues::of_arguments(std::string_view arguments) const {
  try {
    const Json json = Json::parse(arguments, "arguments");
    if (json.is(Json::Type::object)) return of_json(json);
  } catch (const Error&) {
  }
  return of_text(arguments);
}

Value ChatValues::of_call(const ToolCall& call) const {
  jinja::Dict* function = jinja::make_dict(machine_);
  jinja::assign(machine_, *function, "name", of_text(call.name));
  jinja::assign(machine_, *function, "arguments", of_arguments(call.arguments));
  jinja::Dict* dict = jinja::make_dict(machine_);
  if (!call.id.empty()) jinja::assign(machine_, *dict, "id", of_text(call.id));
  jinja::assign(machine_, *dict, "type", "function");
  jinja::assign(machine_, *dict, "function", function);
  return dict;
}

Value ChatValues::of_message(const ChatMessage& message) const {
  jinja::Dict* dict = jinja::make_dict(machine_);
  const auto set = [&](std::string_view key, const Value& value) {
    jinja::assign(machine_, *dict, key, value);
  };
  set("role", of_text(message.role, TextKind::word));
  set("content", of_text(message.content));
  for (const auto& [key, text] :
       {std::pair("reasoning_content", &message.reasoning_content),
        std::pair("name", &message.name), std::pair("tool_call_id", &message.tool_call_id)})
    if (!text->empty()) set(key, of_text(*text));
  if (message.tool_calls.empty()) return dict;
  jinja::List* calls = jinja::make_list(machine_);
  for (const ToolCall& call : message.tool_calls) jinja::push(machine_, *calls, of_call(call));
  set("tool_calls", calls);
  return dict;
}

Value ChatValues::of_messages(const std::vector<ChatMessage>& messages) const {
  jinja::List* list = jinja::make_list(machine_);
  for (const ChatMessage& message : messages) jinja::push(machine_, *list, of_message(message));
  return list;
}

}  // namespace tyto
