#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>

#include "base/utc_time.h"
#include "serve/api/embeddings.h"
#include "serve/api/errors.h"
#include "serve/api/fields.h"
#include "serve/api/generation.h"
#include "serve/api/routes.h"
#include "text/tools.h"

namespace tyto::api {
namespace {

std::string in_capitals(std::string text) {
  for (char& letter : text)
    letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  return text;
}

ordered_json details_json(const ModelText& model) {
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

ordered_json tag_json(const ModelText& model) {
  return {{"name", tagged(model.name)},
          {"model", tagged(model.name)},
          {"modified_at", utc_time(model.modified_at)},
          {"size", model.weight_bytes},
          {"digest", model.digest},
          {"details", details_json(model)}};
}

ordered_json capabilities(const ModelText& model) {
  ordered_json list = {"completion", "embedding"};
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
                 ordered_json said) {
  const auto asked = parse_ollama_load(body, text);
  if (!asked) return false;
  const std::string name = find_model(exchange.api, parse_model(body))->name;
  ordered_json answer = {{"model", name}, {"created_at", utc_now()}};
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
  ordered_json models = ordered_json::array();
  for (const std::string& name : exchange.api.engine.names())
    models.push_back(tag_json(*find_model(exchange.api, name)));
  exchange.send({{"models", std::move(models)}});
}

void answer_ollama_running(const Exchange& exchange) {
  ordered_json models = ordered_json::array();
  for (const ModelStatus& status : exchange.api.engine.models()) {
    if (!status.is_loaded) continue;
    ordered_json entry = tag_json(*find_model(exchange.api, status.name));
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
                 {"messages", ordered_json::array()},
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
  embed(exchange, *model, parse_ollama_embed(body),
        [](const Embeddings& embeddings) -> ordered_json {
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
  embed(exchange, *model, parse_ollama_embed(body),
        [](const Embeddings& embeddings) -> ordered_json {
          return {{"embedding", embeddings.vectors.front()}};
        });
  unload_after(exchange, body, *model);
}

}  // namespace tyto::api
