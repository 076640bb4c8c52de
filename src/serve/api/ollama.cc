#include <algorithm>
#include <cctype>
#include <charconv>
#include <chrono>
#include <cmath>

#include <fmt/format.h>

#include "base/json.h"
#include "base/json_value.h"
#include "base/spelling.h"
#include "serve/api/answer.h"
#include "serve/api/errors.h"
#include "serve/api/generation.h"
#include "serve/api/requests.h"
#include "serve/api/routes.h"
#include "text/tools.h"

namespace tyto::api {

// Ollama's answers: one JSON object to a line, the last with the numbers.

namespace {

const char* done_reason(const Choice& choice) {
  return is_cut(choice) ? "length" : "stop";
}

JsonValue scored_json(const std::vector<ScoredToken>& tokens) {
  const auto one = [](const ScoredText& token) -> JsonValue {
    return {{"token", token.bytes}, {"logprob", token.log_probability}};
  };
  JsonValue list = JsonValue::array();
  for (const ScoredToken& token : tokens) {
    JsonValue entry = one(token.chosen);
    for (const ScoredText& other : token.most_probable) entry["top_logprobs"].push_back(one(other));
    list.push_back(std::move(entry));
  }
  return list;
}

// Ollama gives arguments as an object, and so only with the whole call.
JsonValue ollama_calls(const std::vector<CallPart>& calls) {
  JsonValue json = JsonValue::array();
  for (const CallPart& call : calls)
    json.push_back({{"function",
                     {{"name", call.name},
                      {"arguments", JsonValue(Json::parse(call.arguments, call.name))}}}});
  return json;
}

class OllamaStyle : public AnswerStyle {
 public:
  explicit OllamaStyle(AnswerHead head) : head_(std::move(head)) {}

  std::string stream_type() const override { return "application/x-ndjson"; }
  ErrorText error_text() const override { return ollama_error; }
  std::string failure(const Refusal& refusal) const override {
    return ollama_error(refusal) + "\n";
  }
  std::string begin(uint32_t) const override { return ""; }

  std::string piece(uint32_t, const Said& since, const JsonValue&) const override {
    if (since.thought.empty() && since.text.empty() && since.tokens.empty()) return "";
    JsonValue json = framed({.thought = since.thought, .text = since.text, .tokens = since.tokens});
    json["done"] = false;
    return json_text(json) + "\n";
  }

  std::string end(uint32_t, const Choice&) const override { return ""; }

  std::string last(std::span<const Choice> choices) const override {
    const Choice& choice = choices.front();
    return json_text(finished(choice, framed({.calls = choice.said.calls}))) + "\n";
  }

  std::string whole(std::span<const Choice> choices) const override {
    return json_text(finished(choices.front(), framed(choices.front().said)));
  }

 protected:
  virtual void add_said(JsonValue& json, const Said& said) const = 0;
  virtual void add_end(JsonValue&) const {}

 private:
  JsonValue framed(const Said& said) const {
    JsonValue json = {{"model", head_.model}, {"created_at", utc_now()}};
    add_said(json, said);
    if (!said.tokens.empty()) json["logprobs"] = scored_json(said.tokens);
    return json;
  }

  JsonValue finished(const Choice& choice, JsonValue json) const {
    json["done"] = true;
    json["done_reason"] = done_reason(choice);
    add_end(json);
    add_ollama_durations(json, choice.receipt);
    return json;
  }

  const AnswerHead head_;
};

class OllamaChat : public OllamaStyle {
  using OllamaStyle::OllamaStyle;
  void add_said(JsonValue& json, const Said& said) const override {
    json["message"] = {{"role", "assistant"},
                       {"content", said.text + text_of_broken_calls(said.calls)}};
    if (!said.thought.empty()) json["message"]["thinking"] = said.thought;
    const auto calls = whole_calls(said.calls);
    if (!calls.empty()) json["message"]["tool_calls"] = ollama_calls(calls);
  }
};

class OllamaText : public OllamaStyle {
  using OllamaStyle::OllamaStyle;
  void add_said(JsonValue& json, const Said& said) const override {
    json["response"] = said.text;
    if (!said.thought.empty()) json["thinking"] = said.thought;
  }
  // Deprecated, and clients still read it.
  void add_end(JsonValue& json) const override { json["context"] = JsonValue::array(); }
};

}  // namespace

std::unique_ptr<AnswerStyle> ollama_chat_style(AnswerHead head) {
  return std::make_unique<OllamaChat>(std::move(head));
}

std::unique_ptr<AnswerStyle> ollama_text_style(AnswerHead head) {
  return std::make_unique<OllamaText>(std::move(head));
}

// Ollama's requests. Where its words differ from OpenAI's: streaming is the default, options are an
// object of their own, and a system prompt may stand beside the prompt.

namespace {

constexpr size_t kMostTexts = 2048;

void refuse_images(const Json& value) {
  if (value.size() > 0) fail_unsupported(value.path(), "the models served here read text alone");
}

// Others are hints to a runtime that is not ours (num_ctx, num_thread, ...) and are ignored.
constexpr Field<GenerationOptions> kOptions[] = {
    {"num_predict",
     [](const Json& value, GenerationOptions& into) {
       const int64_t count = integer_in(value, -2, INT32_MAX);
       into.max_tokens.reset();
       if (count >= 0) into.max_tokens = static_cast<uint32_t>(std::max<int64_t>(count, 1));
     }},
    {"stop", [](const Json& value, GenerationOptions& into) { into.stop = stops_of(value); }},
};

constexpr Field<GenerationOptions> kOllamaFields[] = {
    {"stream", [](const Json& value, GenerationOptions& into) { into.stream = value.as_bool(); }},
    {"format",
     [](const Json& value, GenerationOptions& into) { into.format = ollama_format(value); }},
    {"logprobs",
     [](const Json& value, GenerationOptions& into) { into.log_probabilities = value.as_bool(); }},
    {"top_logprobs",
     [](const Json& value, GenerationOptions& into) {
       into.top_log_probabilities = top_count_of(value);
     }},
    {"options",
     [](const Json& value, GenerationOptions& into) {
       if (!value.is(Json::Type::object)) value.fail("expected an object");
       read_sampling(value, into.sampling);
       read_fields(value, kOptions, into);
     }},
};

GenerationOptions read_options(const Json& body, const SamplerOptions& defaults) {
  GenerationOptions options{.sampling = defaults, .stream = true};
  options.sampling.seed = random_seed();
  read_fields(body, kOllamaFields, options);
  return options;
}

// "think" is a switch, or a word for how much.
std::optional<bool> read_think(const Json& body) {
  const auto value = body.find("think");
  if (!value) return std::nullopt;
  std::optional<bool> thinks = true;
  in_field(*value, [&] {
    if (!value->is(Json::Type::string)) thinks = value->as_bool();
  });
  return thinks;
}

constexpr Field<GenerateRequest> kGenerateFields[] = {
    {"system",
     [](const Json& value, GenerateRequest& into) {
       if (std::string text = text_of(value); !text.empty())
         into.conversation.messages.push_back({.role = "system", .content = std::move(text)});
     }},
    {"prompt",
     [](const Json& value, GenerateRequest& into) {
       into.conversation.messages.push_back({.role = "user", .content = text_of(value)});
     }},
    {"raw",
     [](const Json& value, GenerateRequest& into) {
       if (value.as_bool()) into.raw = into.conversation.messages.back().content;
     }},
    {"images", [](const Json& value, GenerateRequest&) { refuse_images(value); }},
    {"context",  // an answer here has none to give back
     [](const Json& value, GenerateRequest&) {
       if (!value.is(Json::Type::array)) value.fail("expected a list of tokens");
       if (value.size() > 0)
         fail_unsupported(value.path(),
                          "tokens of earlier answers are not taken; send the conversation as "
                          "\"messages\" to /api/chat");
     }},
    {"suffix",
     [](const Json& value, GenerateRequest&) {
       if (!text_of(value).empty())
         fail_unsupported(value.path(), "text is only written behind a prompt");
     }},
    {"template",
     [](const Json& value, GenerateRequest&) {
       if (!text_of(value).empty())
         fail_unsupported(value.path(), "templates are the model's; use \"raw\"");
     }},
};

constexpr Field<EmbeddingsRequest> kEmbedFields[] = {
    {"truncate",
     [](const Json& value, EmbeddingsRequest& into) { into.truncate = value.as_bool(); }},
    {"dimensions",
     [](const Json& value, EmbeddingsRequest& into) {
       into.dimensions = static_cast<uint32_t>(integer_in(value, 1, INT32_MAX));
     }},
};

}  // namespace

ChatCompletionRequest parse_ollama_chat(const Json& body, const SamplerOptions& defaults) {
  ChatCompletionRequest request{.options = read_options(body, defaults),
                                .conversation = parse_conversation(body)};
  request.conversation.thinking = read_think(body);
  body.at("messages").for_each_element([](size_t, const Json& message) {
    if (const auto images = message.find("images"))
      in_field(*images, [&] { refuse_images(*images); });
  });
  read_tools(body, request);
  return request;
}

GenerateRequest parse_ollama_generate(const Json& body, const SamplerOptions& defaults) {
  GenerateRequest request{.options = read_options(body, defaults)};
  required_field(body, "prompt");
  read_fields(body, kGenerateFields, request);
  request.conversation.thinking = read_think(body);
  return request;
}

std::optional<LoadRequest> parse_ollama_load(const Json& body, std::string_view field) {
  const auto said = body.find(field);
  const bool is_list = field == "messages";
  const bool is_known = said && said->is(is_list ? Json::Type::array : Json::Type::string);
  const bool is_empty = is_known && (is_list ? said->size() == 0 : said->as_string().empty());
  if (said && !is_empty) return std::nullopt;
  return LoadRequest{.unloads = keeps_for_no_time(body)};
}

bool keeps_for_no_time(const Json& body) {
  const auto value = body.find("keep_alive");
  if (!value) return false;
  if (value->is(Json::Type::string)) {  // "0", "0s", "0m"
    const std::string text = text_of(*value);
    double time = 1;
    std::from_chars(text.data(), text.data() + text.size(), time);
    return time == 0;
  }
  const bool is_number = value->is(Json::Type::integer) || value->is(Json::Type::number);
  return is_number && value->as_double() == 0;
}

EmbeddingsRequest parse_ollama_embed(const Json& body) {
  EmbeddingsRequest request;
  request.truncate = !body.find("prompt");  // which is of the older form
  read_fields(body, kEmbedFields, request);
  const Json value = body.find("prompt") ? body.at("prompt") : required_field(body, "input");
  in_field(value, [&] { request.inputs = texts_or_tokens_of(value, kMostTexts); });
  return request;
}

namespace {

std::string in_capitals(std::string text) {
  for (char& letter : text)
    letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  return text;
}

JsonValue details_json(const ModelText& model) {
  return {{"parent_model", ""},
          {"format", model.format.substr(0, model.format.find(' '))},  // "gguf v3"
          {"family", model.architecture},
          {"families", {model.architecture}},
          {"parameter_size", model.size},
          {"quantization_level", in_capitals(model.weight_type)}};
}

// Ollama's names have a tag.
std::string tagged(const std::string& name) {
  return name.find(':') == name.npos ? name + std::string(kDefaultTag) : name;
}

JsonValue tag_json(const ModelText& model) {
  return {{"name", tagged(model.name)},
          {"model", tagged(model.name)},
          {"modified_at", utc_time(model.modified_at)},
          {"size", model.weight_bytes},
          {"digest", model.digest},
          {"details", details_json(model)}};
}

JsonValue capabilities(const ModelText& model) {
  JsonValue list = {"completion", "embedding"};
  if (model.tool_format != ToolFormat::none) list.push_back("tools");
  return list;
}

// When the model is unloaded, if no request comes before.
std::string expiry(const EngineThread& engine, const ModelStatus& status) {
  const auto keep_alive = engine.keep_alive();
  if (!keep_alive) return "9999-12-31T00:00:00Z";  // it stays
  const auto left = status.last_used + *keep_alive - std::chrono::steady_clock::now();
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(left).count();
  return utc_time(seconds_since_1970() + std::max<int64_t>(seconds, 0));
}

// Answers a request without a text, which only loads or unloads the model. False: it has a text.
bool answer_load(const Exchange& exchange, const Json& body, std::string_view text,
                 JsonValue said) {
  const auto asked = parse_ollama_load(body, text);
  if (!asked) return false;
  const std::string name = find_model(exchange.api, parse_model(body))->name;
  JsonValue answer = {{"model", name}, {"created_at", utc_now()}};
  answer.update(said);
  answer["done"] = true;
  answer["done_reason"] = asked->unloads ? "unload" : "load";
  if (asked->unloads) {
    exchange.api.engine.unload(name);
    exchange.send(answer);
    return true;
  }
  exchange.api.engine.load(name, [reply = exchange.reply,
                                  answer = std::move(answer)](const std::optional<Error>& error) {
    reply->send(error ? error_response(refusal_of_end(*error), ollama_error)
                      : http::Response{.body = json_text(answer)});
  });
  return true;
}

// After this request's answer, where it says so.
void unload_after(const Exchange& exchange, const Json& body, const ModelText& model) {
  if (keeps_for_no_time(body)) exchange.api.engine.unload(model.name);
}

uint64_t unsigned_nanoseconds(double seconds) {
  return static_cast<uint64_t>(std::llround(seconds * 1e9));
}

}  // namespace

void answer_ollama_version(const Exchange& exchange) {
  exchange.send({{"version", exchange.api.version}});
}

void answer_ollama_tags(const Exchange& exchange) {
  JsonValue models = JsonValue::array();
  for (const std::string& name : exchange.api.engine.names())
    models.push_back(tag_json(*find_model(exchange.api, name)));
  exchange.send({{"models", std::move(models)}});
}

void answer_ollama_running(const Exchange& exchange) {
  JsonValue models = JsonValue::array();
  for (const ModelStatus& status : exchange.api.engine.models()) {
    if (!status.is_loaded) continue;
    JsonValue entry = tag_json(*find_model(exchange.api, status.name));
    entry["expires_at"] = expiry(exchange.api.engine, status);
    entry["size_vram"] = 0;
    models.push_back(std::move(entry));
  }
  exchange.send({{"models", std::move(models)}});
}

void answer_ollama_show(const Exchange& exchange) {
  const auto model = find_model(exchange.api, parse_model(parse_body(exchange.request.body)));
  const std::string& family = model->architecture;
  exchange.send({{"license", ""},
                 {"modelfile", ""},
                 {"parameters", ""},
                 {"template", model->chat_template_source},
                 {"system", ""},
                 {"details", details_json(*model)},
                 {"messages", JsonValue::array()},
                 {"modified_at", utc_time(model->modified_at)},
                 {"model_info",
                  {{"general.architecture", family},
                   {"general.parameter_count", model->parameters},
                   {family + ".context_length", model->context},
                   {family + ".embedding_length", model->embedding_size},
                   {family + ".vocab_size", model->tokenizer->size()}}},
                 {"capabilities", capabilities(*model)}});
}

void answer_ollama_chat(const Exchange& exchange) {
  const Json body = parse_body(exchange.request.body);
  if (answer_load(exchange, body, "messages",
                  {{"message", {{"role", "assistant"}, {"content", ""}}}}))
    return;
  const auto model = find_model(exchange.api, parse_model(body));
  generate_answer(exchange, chat_generation(model, parse_ollama_chat(body, model->sampling)),
                  "chatcmpl-", ollama_chat_style);
  unload_after(exchange, body, *model);
}

void answer_ollama_generate(const Exchange& exchange) {
  const Json body = parse_body(exchange.request.body);
  if (answer_load(exchange, body, "prompt", {{"response", ""}})) return;
  const auto model = find_model(exchange.api, parse_model(body));
  GenerateRequest request = parse_ollama_generate(body, model->sampling);
  Generation generation;
  if (request.raw)
    generation = {.model = model,
                  .options = std::move(request.options),
                  .prompts = {prompt_tokens(*model, {.text = *request.raw}, "prompt")},
                  .is_raw = true};
  else
    generation = chat_generation(model, {.options = std::move(request.options),
                                         .conversation = std::move(request.conversation)});
  generation.field = "prompt";
  generate_answer(exchange, std::move(generation), "cmpl-", ollama_text_style);
  unload_after(exchange, body, *model);
}

void answer_ollama_embed(const Exchange& exchange) {
  const Json body = parse_body(exchange.request.body);
  const auto model = find_model(exchange.api, parse_model(body));
  embed(exchange, *model, parse_ollama_embed(body), [](const Embeddings& embeddings) -> JsonValue {
    return {{"model", embeddings.model},
            {"embeddings", embeddings.vectors},
            {"total_duration", unsigned_nanoseconds(embeddings.seconds)},
            {"load_duration", 0},
            {"prompt_eval_count", embeddings.tokens}};
  });
  unload_after(exchange, body, *model);
}

// The older form: one text, one vector.
void answer_ollama_embeddings(const Exchange& exchange) {
  const Json body = parse_body(exchange.request.body);
  const auto model = find_model(exchange.api, parse_model(body));
  embed(exchange, *model, parse_ollama_embed(body), [](const Embeddings& embeddings) -> JsonValue {
    return {{"embedding", embeddings.vectors.front()}};
  });
  unload_after(exchange, body, *model);
}

}  // namespace tyto::api
