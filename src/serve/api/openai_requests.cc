#include <fmt/format.h>

#include "serve/api/errors.h"
#include "serve/api/requests.h"

namespace tyto::api {
namespace {

constexpr size_t kMostMessages = 4096;
constexpr size_t kMostTools = 128;
constexpr size_t kMostPrompts = 64;
constexpr size_t kMostInputs = 2048;  // as OpenAI's

void read_messages(const Json& value, Conversation& into) {
  if (const size_t count = value.size(); count > kMostMessages)
    value.fail(fmt::format("has {} entries; at most {} are taken", count, kMostMessages));
  into.messages = messages_from_json(value);
  if (into.messages.empty()) value.fail("is empty");
}

constexpr Field<Conversation> kConversationFields[] = {
    {"messages", read_messages},
    {"tools", [](const Json& value, Conversation& into) { into.tools = value; }},
    {"chat_template_kwargs",
     [](const Json& value, Conversation& into) {
       if (!value.is(Json::Type::object)) value.fail("expected an object");
       into.variables = value;
     }},
    {"enable_thinking",
     [](const Json& value, Conversation& into) { into.thinking = value.as_bool(); }},
    {"add_generation_prompt",
     [](const Json& value, Conversation& into) { into.add_generation_prompt = value.as_bool(); }},
    {"special",
     [](const Json& value, Conversation& into) { into.special_in_messages = value.as_bool(); }},
};

// The tools are read before the choice among them.
constexpr Field<ChatCompletionRequest> kToolFields[] = {
    {"tools",
     [](const Json& value, ChatCompletionRequest& into) {
       into.tools = tools_from_json(value);
       if (into.tools.size() > kMostTools)
         value.fail(
             fmt::format("has {} entries; at most {} are taken", into.tools.size(), kMostTools));
     }},
    {"tool_choice",
     [](const Json& value, ChatCompletionRequest& into) {
       into.tool_choice = tool_choice_from_json(value, into.tools);
     }},
    {"parallel_tool_calls",
     [](const Json& value, ChatCompletionRequest& into) { into.parallel_calls = value.as_bool(); }},
};

constexpr Field<ChatCompletionRequest> kChatFields[] = {
    {"logprobs",
     [](const Json& value, ChatCompletionRequest& into) {
       into.options.log_probabilities = value.as_bool();
     }},
    {"top_logprobs",
     [](const Json& value, ChatCompletionRequest& into) {
       into.options.top_log_probabilities = top_count_of(value);
       if (into.options.top_log_probabilities > 0 && !into.options.log_probabilities)
         value.fail("needs \"logprobs\": true");
     }},
};

constexpr Field<TextCompletionRequest> kCompletionFields[] = {
    {"prompt",
     [](const Json& value, TextCompletionRequest& into) {
       into.prompts = texts_or_tokens_of(value, kMostPrompts);
     }},
    {"echo", [](const Json& value, TextCompletionRequest& into) { into.echo = value.as_bool(); }},
    {"logprobs",
     [](const Json& value, TextCompletionRequest& into) {
       if (into.echo) fail_unsupported(value.path(), "cannot be combined with \"echo\"");
       into.options.log_probabilities = true;
       into.options.top_log_probabilities = top_count_of(value);
     }},
    {"best_of",
     [](const Json& value, TextCompletionRequest& into) {
       const int64_t count = integer_in(value, 1, INT32_MAX);
       if (count > into.options.choices)
         fail_unsupported(value.path(), "every answer that is made is returned; use \"n\"");
     }},
    {"suffix",
     [](const Json& value, TextCompletionRequest&) {
       if (!text_of(value).empty())
         fail_unsupported(value.path(), "text is only written behind a prompt");
     }},
};

constexpr Field<EmbeddingsRequest> kEmbeddingFields[] = {
    {"input",
     [](const Json& value, EmbeddingsRequest& into) {
       into.inputs = texts_or_tokens_of(value, kMostInputs);
     }},
    {"encoding_format",
     [](const Json& value, EmbeddingsRequest& into) {
       const std::string format = text_of(value);
       if (format != "float" && format != "base64")
         value.fail(fmt::format("'{}' is neither float nor base64", format));
       into.base64 = format == "base64";
     }},
    {"dimensions",
     [](const Json& value, EmbeddingsRequest& into) {
       into.dimensions = static_cast<uint32_t>(integer_in(value, 1, INT32_MAX));
     }},
};

}  // namespace

std::string parse_model(const Json& body) {
  const auto value = body.find("model");
  if (!value) return "";
  std::string name;
  in_field(*value, [&] { name = text_of(*value); });
  return name;
}

// With tools the model must be free to choose between text and calls.
void read_tools(const Json& body, ChatCompletionRequest& request) {
  read_fields(body, kToolFields, request);
  if (request.tool_choice.kind == ToolChoice::Kind::none) request.tools.clear();
  if (request.tools.empty()) request.conversation.tools.reset();
  if (!request.tools.empty() && request.options.format.kind != OutputFormat::Kind::text)
    throw RequestError(400, "unsupported", "tools",
                       "cannot be combined with a format of the answer or a grammar");
}

Conversation parse_conversation(const Json& body) {
  Conversation conversation;
  required_field(body, "messages");
  read_fields(body, kConversationFields, conversation);
  return conversation;
}

ChatCompletionRequest parse_chat_completion(const Json& body, const SamplerOptions& defaults) {
  ChatCompletionRequest request{.options = {.sampling = defaults}};
  request.conversation = parse_conversation(body);
  read_generation(body, request.options);
  read_fields(body, kChatFields, request);
  read_tools(body, request);
  return request;
}

TextCompletionRequest parse_completion(const Json& body, const SamplerOptions& defaults) {
  TextCompletionRequest request{.options = {.sampling = defaults}};
  required_field(body, "prompt");
  read_generation(body, request.options);
  read_fields(body, kCompletionFields, request);
  return request;
}

EmbeddingsRequest parse_embeddings(const Json& body) {
  EmbeddingsRequest request;
  required_field(body, "input");
  read_fields(body, kEmbeddingFields, request);
  return request;
}

}  // namespace tyto::api
