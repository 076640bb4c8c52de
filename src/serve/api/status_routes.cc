#include "serve/api/errors.h"
#include "serve/api/routes.h"
#include "serve/gauges.h"

namespace tyto::api {
namespace {

ordered_json model_json(const ModelText& model) {
  return {{"id", model.name},
          {"object", "model"},
          {"created", model.modified_at},
          {"owned_by", "tyto"},
          {"meta",
           {{"format", model.format},
            {"architecture", model.architecture},
            {"weight_type", model.weight_type},
            {"n_params", model.parameters},
            {"size", model.weight_bytes},
            {"n_ctx", model.context},
            {"n_embd", model.embedding_size},
            {"n_vocab", model.tokenizer->size()}}}};
}

ordered_json sampling_json(const SamplerOptions& sampling) {
  return {{"temperature", sampling.temperature},
          {"top_k", sampling.top_k},
          {"top_p", sampling.top_p},
          {"min_p", sampling.min_p},
          {"repeat_penalty", sampling.repeat_penalty},
          {"frequency_penalty", sampling.frequency_penalty},
          {"presence_penalty", sampling.presence_penalty},
          {"repeat_last_n", sampling.penalty_window}};
}

ordered_json devices_json(const std::vector<DeviceInfo>& devices) {
  ordered_json list = ordered_json::array();
  for (const DeviceInfo& device : devices)
    list.push_back({{"name", device.name},
                    {"description", device.description},
                    {"virtual", device.is_virtual}});
  return list;
}

ordered_json status_json(const ModelStatus& status) {
  return {{"name", status.name},
          {"loaded", status.is_loaded},
          {"failure", text_or_null(status.failure)},
          {"slots", status.slots},
          {"kv_pages", status.kv_pages},
          {"kv_pages_in_use", status.kv_pages_in_use},
          {"kv_window_pages", status.kv_window_pages},
          {"kv_window_pages_in_use", status.kv_window_pages_in_use},
          {"prefix_pages", status.prefix_pages},
          {"setup_seconds", status.setup_seconds},
          {"devices", devices_json(status.devices)},
          {"fallbacks", status.fallbacks},
          {"on_host", status.on_host}};
}

std::string text_of_token(const ModelText& model, Token token) {
  return token < 0 ? "" : model.tokenizer->token_bytes(token);
}

void require_view(const Exchange& exchange, bool is_there) {
  if (!is_there)
    throw RequestError(404, "not_found", "",
                       fmt::format("this server has no {}", exchange.request.path));
}

}  // namespace

void answer_health(const Exchange& exchange) {
  if (!exchange.api.engine.is_ready())
    throw RequestError(503, "model_loading", "", "the models are being loaded");
  exchange.send({{"status", "ok"}});
}

void answer_models(const Exchange& exchange) {
  ordered_json data = ordered_json::array();
  for (const std::string& name : exchange.api.engine.names())
    data.push_back(model_json(*find_model(exchange.api, name)));
  exchange.send({{"object", "list"}, {"data", std::move(data)}});
}

void answer_model(const Exchange& exchange) {
  exchange.send(model_json(*find_model(exchange.api, exchange.name)));
}

// llama-server's fields first, then what only we have.
void answer_props(const Exchange& exchange) {
  const auto model = find_model(exchange.api, "");
  ordered_json models = ordered_json::array();
  uint32_t slots = 0;
  for (const ModelStatus& status : exchange.api.engine.models()) {
    if (status.name == model->name) slots = status.slots;
    models.push_back(status_json(status));
  }
  const Vocabulary& vocabulary = model->tokenizer->vocabulary();
  const Token eos = vocabulary.eos.empty() ? -1 : vocabulary.eos.front();
  exchange.send({{"default_generation_settings",
                  {{"n_ctx", model->context}, {"params", sampling_json(model->sampling)}}},
                 {"total_slots", slots},
                 {"model_alias", model->name},
                 {"model_path", model->path},
                 {"chat_template", model->chat_template_source},
                 {"bos_token", text_of_token(*model, vocabulary.bos)},
                 {"eos_token", text_of_token(*model, eos)},
                 {"build_info", "tyto-" + exchange.api.version},
                 {"models", std::move(models)}});
}

void answer_slots(const Exchange& exchange) {
  ordered_json list = ordered_json::array();
  for (const SlotStatus& slot : exchange.api.engine.slots())
    list.push_back({{"id", slot.id},
                    {"model", slot.model},
                    {"choice", slot.choice},
                    {"is_processing", slot.request.is_running},
                    {"prompt_tokens", slot.request.prompt_tokens},
                    {"cached_tokens", slot.request.cached_tokens},
                    {"done_tokens", slot.request.done_tokens},
                    {"generated_tokens", slot.request.generated_tokens},
                    {"seconds", slot.seconds}});
  exchange.send(list);
}

void answer_metrics(const Exchange& exchange) {
  const Api& api = exchange.api;
  const http::ServerCounts counts = api.connections ? api.connections() : http::ServerCounts{};
  exchange.reply->send(
      {.type = "text/plain; version=0.0.4; charset=utf-8",
       .body = api.metrics.text(gauges_of(api.engine.slots(), api.engine.models(), counts))});
}

void answer_doctor(const Exchange& exchange) {
  const auto& doctor = exchange.api.views.doctor;
  require_view(exchange, doctor != nullptr);
  doctor->ask([reply = exchange.reply](const std::string& text, const std::optional<Error>& error) {
    if (!error) return reply->send({.body = text});
    reply->send(error_response({.status = 500, .message = error->what()}, openai_error));
  });
}

void answer_plan(const Exchange& exchange) {
  const auto& plan = exchange.api.views.plan;
  require_view(exchange, static_cast<bool>(plan));
  exchange.reply->send({.body = plan()});
}

}  // namespace tyto::api
