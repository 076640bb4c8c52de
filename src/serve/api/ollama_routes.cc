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

// "1.2B", "134M".
std::string parameter_size(uint64_t parameters) {
  if (parameters >= 1'000'000'000)
    return fmt::format("{:.1f}B", static_cast<double>(parameters) * 1e-9);
  return fmt::format("{:.1f}M", static_cast<double>(parameters) * 1e-6);
}

ordered_json details_json(const ModelText& model) {
  return {{"parent_model", ""},
          {"format", model.format},
          {"family", model.architecture},
          {"families", {model.architecture}},
          {"parameter_size", parameter_size(model.parameters)},
          {"quantization_level", model.weight_type}};
}

ordered_json tag_json(const ModelText& model) {
  return {{"name", model.name},
          {"model", model.name},
          {"modified_at", utc_time(static_cast<int64_t>(model.loaded_at))},
          {"size", model.weight_bytes},
          {"digest", ""},
          {"details", details_json(model)}};
}

ordered_json capabilities(const ModelText& model) {
  ordered_json list = {"completion", "embedding"};
  if (model.chat_template && tool_format(*model.chat_template) != ToolFormat::none)
    list.push_back("tools");
  return list;
}

uint64_t nanoseconds(double seconds) {
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
    entry["expires_at"] = "9999-12-31T00:00:00Z";  // when nobody says otherwise it stays
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
                 {"modified_at", utc_time(static_cast<int64_t>(model->loaded_at))},
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
  const auto model = find_model(exchange.api, parse_model(body));
  generate_answer(exchange, chat_generation(model, parse_ollama_chat(body, model->sampling)),
                  "chatcmpl-", ollama_chat_style);
}

void answer_ollama_generate(const Exchange& exchange) {
  const Json body = parse_body(exchange.request.body);
  const auto model = find_model(exchange.api, parse_model(body));
  GenerateRequest request = parse_ollama_generate(body, model->sampling);
  if (!request.raw) {
    Generation generation = chat_generation(
        model,
        {.options = std::move(request.options), .conversation = std::move(request.conversation)});
    generation.field = "prompt";
    return generate_answer(exchange, std::move(generation), "cmpl-", ollama_text_style);
  }
  generate_answer(exchange,
                  {.model = model,
                   .options = std::move(request.options),
                   .prompts = {prompt_tokens(*model, {.text = *request.raw}, "prompt")},
                   .field = "prompt"},
                  "cmpl-", ollama_text_style);
}

void answer_ollama_embed(const Exchange& exchange) {
  const Json body = parse_body(exchange.request.body);
  const auto model = find_model(exchange.api, parse_model(body));
  embed(exchange, *model, parse_ollama_embed(body).inputs,
        [](const Embeddings& embeddings) -> ordered_json {
          return {{"model", embeddings.model},
                  {"embeddings", embeddings.vectors},
                  {"total_duration", nanoseconds(embeddings.seconds)},
                  {"load_duration", 0},
                  {"prompt_eval_count", embeddings.tokens}};
        });
}

// The older form: one text, one vector.
void answer_ollama_embeddings(const Exchange& exchange) {
  const Json body = parse_body(exchange.request.body);
  const auto model = find_model(exchange.api, parse_model(body));
  embed(exchange, *model, parse_ollama_embed(body).inputs,
        [](const Embeddings& embeddings) -> ordered_json {
          return {{"embedding", embeddings.vectors.front()}};
        });
}

}  // namespace tyto::api
