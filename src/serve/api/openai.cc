#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include <fmt/format.h>
#include <sodium.h>

#include "base/json_value.h"
#include "base/utf8.h"
#include "serve/api/answer.h"
#include "serve/api/errors.h"
#include "serve/api/generation.h"
#include "serve/api/requests.h"
#include "serve/api/routes.h"

namespace tyto::api {

// OpenAI's answers: chat completions and the older completions of a text. Pieces are server-sent
// events.

namespace {

constexpr const char* kDone = "data: [DONE]\n\n";

std::string event(const std::string& json) {
  return "data: " + json + "\n\n";
}

// An object of fields, one whose value is written already, and further fields.
std::string object_text(const JsonValue& front, const char* name, const std::string& value,
                        const JsonValue& behind) {
  std::string text = json_text(front);
  text.back() = ',';
  text += fmt::format("\"{}\":", name);
  text += value;
  return text += behind.size() == 0 ? "}" : json_text(behind).replace(0, 1, ",");
}

const char* finish_reason(const Choice& choice) {
  if (is_cut(choice)) return "length";
  return whole_calls(choice.said.calls).empty() ? "stop" : "tool_calls";
}

// JSON has no infinity; this is OpenAI's number for a token that cannot come.
double shown(float log_probability) {
  return std::isfinite(log_probability) ? log_probability : -9999.0;
}

std::string quoted(const std::string& text) {
  return json_text(JsonValue(text));
}

// There may be many thousands of them, so they are written as text and not as a tree first.
void append_scored(const ScoredText& token, std::string& to) {
  fmt::format_to(std::back_inserter(to), R"({{"token":{},"logprob":{},"bytes":[)",
                 quoted(token.bytes), shown(token.log_probability));
  for (const char byte : token.bytes)
    fmt::format_to(std::back_inserter(to), "{},", static_cast<uint8_t>(byte));
  if (!token.bytes.empty()) to.pop_back();
  to += ']';
}

std::string chat_log_probabilities(const std::vector<ScoredToken>& tokens) {
  std::string text = R"({"content":[)";
  for (const ScoredToken& token : tokens) {
    append_scored(token.chosen, text);
    text += R"(,"top_logprobs":[)";
    for (const ScoredText& other : token.most_probable) {
      append_scored(other, text);
      text += "},";
    }
    if (!token.most_probable.empty()) text.pop_back();
    text += "]},";
  }
  if (!tokens.empty()) text.pop_back();
  return text += R"(],"refusal":null})";
}

// "bytes:\\xe2\\x80": how OpenAI names what is only a part of a character.
std::string named_by_bytes(std::string_view bytes) {
  std::string name = "bytes:";
  for (const char byte : bytes) name += fmt::format("\\x{:02x}", static_cast<uint8_t>(byte));
  return name;
}

std::string text_or_bytes(const std::string& bytes) {
  return valid_utf8_prefix(bytes) == bytes.size() ? bytes : named_by_bytes(bytes);
}

// Vocabularies may have several tokens of one text.
std::string unused_name(const JsonValue& object, const std::string& bytes) {
  std::string name = text_or_bytes(bytes);
  if (object.contains(name)) name = named_by_bytes(bytes);
  while (object.contains(name)) name += "'";
  return name;
}

std::string text_log_probabilities(const std::vector<ScoredToken>& tokens) {
  std::string texts, values, tops, offsets;
  for (const ScoredToken& token : tokens) {
    const char* const comma = texts.empty() ? "" : ",";
    texts += comma + quoted(text_or_bytes(token.chosen.bytes));
    values += fmt::format("{}{}", comma, shown(token.chosen.log_probability));
    JsonValue top = JsonValue::object();
    for (const ScoredText& other : token.most_probable)
      top[unused_name(top, other.bytes)] = shown(other.log_probability);
    tops += comma + json_text(top);
    offsets += fmt::format("{}{}", comma, token.offset);
  }
  return fmt::format(
      R"({{"tokens":[{}],"token_logprobs":[{}],"top_logprobs":[{}],"text_offset":[{}]}})", texts,
      values, tops, offsets);
}

JsonValue call_json(const CallPart& call) {
  JsonValue json = {{"index", call.index}};
  if (!call.id.empty()) json["id"] = call.id;
  if (!call.id.empty()) json["type"] = "function";
  json["function"] = JsonValue::object();
  if (!call.name.empty()) json["function"]["name"] = call.name;
  json["function"]["arguments"] = call.arguments;
  return json;
}

JsonValue openai_calls(const std::vector<CallPart>& calls) {
  JsonValue json = JsonValue::array();
  for (const CallPart& call : calls) json.push_back(call_json(call));
  return json;
}

// What both kinds share: the frame around choices.
class OpenAiStyle : public AnswerStyle {
 public:
  explicit OpenAiStyle(AnswerHead head) : head_(std::move(head)) {}

  std::string stream_type() const override { return "text/event-stream"; }
  ErrorText error_text() const override { return openai_error; }
  std::string failure(const Refusal& refusal) const override {
    return "data: " + openai_error(refusal) + "\n\n";
  }

  std::string piece(uint32_t index, const Said& since, const JsonValue& timings) const override {
    JsonValue behind = no_usage();
    if (!timings.is_null()) behind["timings"] = timings;
    return event(framed(piece_object(), choice_piece(index, since, nullptr), behind));
  }

  std::string end(uint32_t index, const Choice& choice) const override {
    JsonValue behind = no_usage();
    add_numbers(behind, choice);
    return event(framed(piece_object(), choice_piece(index, {}, finish_reason(choice)), behind));
  }

  std::string last(std::span<const Choice> choices) const override {
    if (!head_.include_usage) return kDone;
    JsonValue behind = {{"usage", usage_json(choices, head_.choices_per_prompt)}};
    if (choices.size() == 1) add_numbers(behind, choices.front());
    return event(framed(piece_object(), "", behind)) + kDone;
  }

  std::string whole(std::span<const Choice> choices) const override {
    JsonValue behind = JsonValue::object();
    std::string all;
    for (uint32_t i = 0; i < choices.size(); ++i) {
      JsonValue numbers = JsonValue::object();
      add_numbers(choices.size() == 1 ? behind : numbers, choices[i]);
      all += (i == 0 ? "" : ",") + whole_choice(i, choices[i], numbers);
    }
    behind["usage"] = usage_json(choices, head_.choices_per_prompt);
    return framed(whole_object(), all, behind);
  }

 protected:
  virtual const char* piece_object() const = 0;
  virtual const char* whole_object() const = 0;
  virtual std::string choice_piece(uint32_t index, const Said& since, const char* finish) const = 0;
  // `numbers` go behind what the choice says.
  virtual std::string whole_choice(uint32_t index, const Choice& choice,
                                   const JsonValue& numbers) const = 0;

  // Around the text of choices, which may be none.
  std::string framed(const char* object, const std::string& choices,
                     const JsonValue& behind) const {
    const JsonValue front = {{"id", head_.id},
                             {"object", object},
                             {"created", head_.created},
                             {"model", head_.model},
                             {"system_fingerprint", "tyto-" + head_.version}};
    return object_text(front, "choices", "[" + choices + "]", behind);
  }

  // Where the usage comes with the last piece, the others say that they have none.
  JsonValue no_usage() const {
    return head_.include_usage ? JsonValue{{"usage", nullptr}} : JsonValue::object();
  }

  static void add_numbers(JsonValue& json, const Choice& choice) {
    json["timings"] = timings_json(choice.receipt);
    if (!choice.receipt_text.empty())
      json["receipt"] = JsonValue(Json::parse(choice.receipt_text, "receipt"));
  }

  static JsonValue reason_or_null(const char* finish) {
    return finish == nullptr ? JsonValue(nullptr) : JsonValue(finish);
  }

  const AnswerHead head_;
};

class OpenAiChat : public OpenAiStyle {
 public:
  using OpenAiStyle::OpenAiStyle;

  std::string begin(uint32_t index) const override {
    return event(framed(piece_object(),
                        with_delta(index, {{"role", "assistant"}, {"content", ""}}, {}, nullptr),
                        no_usage()));
  }

 protected:
  const char* piece_object() const override { return "chat.completion.chunk"; }
  const char* whole_object() const override { return "chat.completion"; }

  std::string choice_piece(uint32_t index, const Said& since, const char* finish) const override {
    JsonValue delta = JsonValue::object();
    if (!since.thought.empty()) delta["reasoning_content"] = since.thought;
    if (!since.text.empty()) delta["content"] = since.text;
    if (!since.calls.empty()) delta["tool_calls"] = openai_calls(since.calls);
    return with_delta(index, std::move(delta), since.tokens, finish);
  }

  std::string whole_choice(uint32_t index, const Choice& choice,
                           const JsonValue& numbers) const override {
    const Said& said = choice.said;
    const std::string text = said.text + text_of_broken_calls(said.calls);
    JsonValue message = {{"role", "assistant"}, {"content", text}, {"refusal", nullptr}};
    if (!said.thought.empty()) message["reasoning_content"] = said.thought;
    if (const auto calls = whole_calls(said.calls); !calls.empty()) {
      if (text.empty()) message["content"] = nullptr;
      message["tool_calls"] = openai_calls(calls);
      for (JsonValue& call : message["tool_calls"].elements()) call.erase("index");
    }
    JsonValue behind = {{"finish_reason", finish_reason(choice)}};
    behind.update(numbers);
    return object_text({{"index", index}, {"message", std::move(message)}}, "logprobs",
                       head_.log_probabilities ? chat_log_probabilities(said.tokens) : "null",
                       behind);
  }

 private:
  static std::string with_delta(uint32_t index, JsonValue delta,
                                const std::vector<ScoredToken>& tokens, const char* finish) {
    return object_text({{"index", index}, {"delta", std::move(delta)}}, "logprobs",
                       tokens.empty() ? "null" : chat_log_probabilities(tokens),
                       {{"finish_reason", reason_or_null(finish)}});
  }
};

class OpenAiText : public OpenAiStyle {
 public:
  using OpenAiStyle::OpenAiStyle;

  std::string begin(uint32_t) const override { return ""; }

 protected:
  const char* piece_object() const override { return "text_completion"; }
  const char* whole_object() const override { return "text_completion"; }

  std::string choice_piece(uint32_t index, const Said& since, const char* finish) const override {
    return object_text({{"index", index}, {"text", since.text}}, "logprobs",
                       since.tokens.empty() ? "null" : text_log_probabilities(since.tokens),
                       {{"finish_reason", reason_or_null(finish)}});
  }

  std::string whole_choice(uint32_t index, const Choice& choice,
                           const JsonValue& numbers) const override {
    JsonValue behind = {{"finish_reason", finish_reason(choice)}};
    behind.update(numbers);
    return object_text(
        {{"index", index}, {"text", choice.said.text}}, "logprobs",
        head_.log_probabilities ? text_log_probabilities(choice.said.tokens) : "null", behind);
  }
};

}  // namespace

std::unique_ptr<AnswerStyle> openai_chat_style(AnswerHead head) {
  return std::make_unique<OpenAiChat>(std::move(head));
}

std::unique_ptr<AnswerStyle> openai_text_style(AnswerHead head) {
  return std::make_unique<OpenAiText>(std::move(head));
}

void place_token(ScoredToken& token, Choice& choice) {
  token.offset = choice.characters;
  for (const char byte : token.chosen.bytes)
    choice.characters += (static_cast<uint8_t>(byte) & 0xC0) != 0x80;  // not inside a character
}

std::string random_id(std::string_view prefix) {
  std::array<uint8_t, 12> bytes;
  randombytes_buf(bytes.data(), bytes.size());
  std::string id(prefix);
  for (const uint8_t byte : bytes) id += fmt::format("{:02x}", byte);
  return id;
}

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

namespace {

// Little-endian floats, as OpenAI's clients expect them.
std::string base64_of(const std::vector<float>& values) {
  const size_t bytes = values.size() * sizeof(float);
  std::string text(sodium_base64_ENCODED_LEN(bytes, sodium_base64_VARIANT_ORIGINAL), '\0');
  sodium_bin2base64(text.data(), text.size(), reinterpret_cast<const uint8_t*>(values.data()),
                    bytes, sodium_base64_VARIANT_ORIGINAL);
  text.pop_back();  // the terminating zero
  return text;
}

JsonValue embeddings_json(const Embeddings& embeddings, bool base64) {
  JsonValue data = JsonValue::array();
  for (const std::vector<float>& values : embeddings.vectors)
    data.push_back({{"object", "embedding"},
                    {"index", data.size()},
                    {"embedding", base64 ? JsonValue(base64_of(values)) : JsonValue(values)}});
  return {{"object", "list"},
          {"data", std::move(data)},
          {"model", embeddings.model},
          {"usage", {{"prompt_tokens", embeddings.tokens}, {"total_tokens", embeddings.tokens}}}};
}

}  // namespace

void answer_chat_completion(const Exchange& exchange) {
  const Json body = parse_body(exchange.request.body);
  const auto model = find_model(exchange.api, parse_model(body));
  generate_answer(exchange, chat_generation(model, parse_chat_completion(body, model->sampling)),
                  "chatcmpl-", openai_chat_style);
}

void answer_completion(const Exchange& exchange) {
  const Json body = parse_body(exchange.request.body);
  const auto model = find_model(exchange.api, parse_model(body));
  const TextCompletionRequest request = parse_completion(body, model->sampling);
  Generation generation{
      .model = model, .options = request.options, .field = "prompt", .is_raw = true};
  for (const TextOrTokens& prompt : request.prompts) {
    generation.prompts.push_back(prompt_tokens(*model, prompt, generation.field));
    if (request.echo)
      generation.begin_with.push_back(prompt.is_tokens ? model->tokenizer->decode(prompt.tokens)
                                                       : prompt.text);
  }
  generate_answer(exchange, std::move(generation), "cmpl-", openai_text_style);
}

void answer_embeddings(const Exchange& exchange) {
  const Json body = parse_body(exchange.request.body);
  const auto model = find_model(exchange.api, parse_model(body));
  const EmbeddingsRequest request = parse_embeddings(body);
  embed(exchange, *model, request, [base64 = request.base64](const Embeddings& embeddings) {
    return embeddings_json(embeddings, base64);
  });
}

}  // namespace tyto::api
