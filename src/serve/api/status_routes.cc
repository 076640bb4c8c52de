#include "base/json_value.h"
#include "base/utf8.h"
#include "report/html.h"
#include "report/report.h"
#include "serve/api/errors.h"
#include "serve/api/generation.h"
#include "serve/api/requests.h"
#include "serve/api/routes.h"
#include "serve/metrics.h"
#include "serve/page/page_files.h"

namespace tyto::api {
namespace {

JsonValue model_json(const ModelText& model) {
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

JsonValue sampling_json(const SamplerOptions& sampling) {
  return {{"temperature", sampling.temperature},
          {"top_k", sampling.top_k},
          {"top_p", sampling.top_p},
          {"min_p", sampling.min_p},
          {"repeat_penalty", sampling.repeat_penalty},
          {"frequency_penalty", sampling.frequency_penalty},
          {"presence_penalty", sampling.presence_penalty},
          {"repeat_last_n", sampling.penalty_window}};
}

JsonValue devices_json(const std::vector<DeviceInfo>& devices) {
  JsonValue list = JsonValue::array();
  for (const DeviceInfo& device : devices)
    list.push_back({{"name", device.name},
                    {"description", device.description},
                    {"virtual", device.is_virtual}});
  return list;
}

JsonValue status_json(const ModelStatus& status) {
  return {{"name", status.name},
          {"loaded", status.is_loaded},
          {"failure", text_or_null(status.failure)},
          {"slots", status.slots},
          {"kv_pages", status.kv_pages},
          {"kv_pages_in_use", status.kv_pages_in_use},
          {"kv_window_pages", status.kv_window_pages},
          {"kv_window_pages_in_use", status.kv_window_pages_in_use},
          {"states", status.states},
          {"states_in_use", status.states_in_use},
          {"state_bytes", status.state_bytes},
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
  JsonValue data = JsonValue::array();
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
  JsonValue models = JsonValue::array();
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
  JsonValue list = JsonValue::array();
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

namespace {

// Reports carry their own styles, run no scripts and load nothing.
http::Headers report_headers() {
  return {{"Content-Security-Policy",
           "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'"}};
}

StoredReceipt find_receipt(const Exchange& exchange) {
  StoredReceipt receipt = exchange.api.engine.receipts().find(exchange.name);
  if (receipt.id.empty())
    throw RequestError(
        404, "not_found", "",
        fmt::format("there is no receipt '{}'; only the last ones are kept", exchange.name));
  return receipt;
}

std::shared_ptr<const Profile> find_profile(const Exchange& exchange) {
  const StoredReceipt receipt = find_receipt(exchange);
  if (receipt.profile) return receipt.profile;
  throw RequestError(404, "not_found", "",
                     receipt.why_no_profile.empty()
                         ? "the request was not recorded; ask for it with \"profile\": true"
                         : receipt.why_no_profile);
}

JsonValue entry_json(const StoredReceipt& receipt) {
  return {{"id", receipt.id},
          {"time", receipt.time},
          {"model", receipt.model},
          {"line", receipt.line},
          {"badge", receipt.badge},
          {"prompt_tokens", receipt.prompt_tokens},
          {"cached_tokens", receipt.cached_tokens},
          {"generated_tokens", receipt.generated_tokens},
          {"profiled", receipt.profile != nullptr}};
}

}  // namespace

void answer_receipts(const Exchange& exchange) {
  JsonValue list = JsonValue::array();
  for (const StoredReceipt& receipt : exchange.api.engine.receipts().list())
    list.push_back(entry_json(receipt));
  exchange.send({{"receipts", std::move(list)}});
}

void answer_receipt(const Exchange& exchange) {
  exchange.reply->send({.body = find_receipt(exchange).json});
}

void answer_profile_json(const Exchange& exchange) {
  exchange.reply->send({.body = json_report(*find_profile(exchange))});
}

void answer_profile_page(const Exchange& exchange) {
  exchange.reply->send({.type = "text/html; charset=utf-8",
                        .body = html_report(*find_profile(exchange)),
                        .headers = report_headers()});
}

void answer_dataflow(const Exchange& exchange) {
  exchange.reply->send({.type = "image/svg+xml",
                        .body = flow_picture(*find_profile(exchange)),
                        .headers = report_headers()});
}

// llama-server's /tokenize, /detokenize and /apply-template.

namespace {

struct TokenizeRequest {
  std::string content = {};
  EncodeOptions options = {.add_bos = false, .add_eos = false, .parse_special = true};
  bool with_pieces = false;
};
constexpr Field<TokenizeRequest> kTokenizeFields[] = {
    {"content", [](const Json& value, TokenizeRequest& into) { into.content = text_of(value); }},
    {"add_special",
     [](const Json& value, TokenizeRequest& into) {
       into.options.add_bos = into.options.add_eos = value.as_bool();
     }},
    {"parse_special", [](const Json& value,
                         TokenizeRequest& into) { into.options.parse_special = value.as_bool(); }},
    {"with_pieces",
     [](const Json& value, TokenizeRequest& into) { into.with_pieces = value.as_bool(); }},
};

// Text, or the bytes of what is only a part of a character.
JsonValue piece_json(const std::string& bytes) {
  if (valid_utf8_prefix(bytes) == bytes.size()) return bytes;
  JsonValue list = JsonValue::array();
  for (const char byte : bytes) list.push_back(static_cast<uint8_t>(byte));
  return list;
}

}  // namespace

void answer_tokenize(const Exchange& exchange) {
  const Json body = parse_body(exchange.request.body);
  required_field(body, "content");
  TokenizeRequest request;
  read_fields(body, kTokenizeFields, request);
  const auto model = find_model(exchange.api, parse_model(body));
  JsonValue tokens = JsonValue::array();
  for (const Token token : model->tokenizer->encode(request.content, request.options)) {
    if (request.with_pieces)
      tokens.push_back(
          {{"id", token}, {"piece", piece_json(model->tokenizer->token_bytes(token))}});
    else
      tokens.push_back(token);
  }
  exchange.send({{"tokens", std::move(tokens)}});
}

void answer_detokenize(const Exchange& exchange) {
  const Json body = parse_body(exchange.request.body);
  TextOrTokens tokens{.is_tokens = true};
  const Json value = required_field(body, "tokens");
  in_field(value, [&] { tokens.tokens = tokens_of(value); });
  const auto model = find_model(exchange.api, parse_model(body));
  exchange.send(
      {{"content", model->tokenizer->decode(prompt_tokens(*model, tokens, "tokens"), true)}});
}

void answer_apply_template(const Exchange& exchange) {
  const Json body = parse_body(exchange.request.body);
  const Conversation conversation = parse_conversation(body);
  exchange.send(
      {{"prompt", chat_text(*find_model(exchange.api, parse_model(body)), conversation)}});
}

bool answer_page_file(const Exchange& exchange) {
  const auto files = page_files();
  const auto file = std::ranges::find(files, exchange.request.path, &PageFile::path);
  if (file == files.end()) return false;
  http::Response response{.type = std::string(file->type),
                          .headers = {{"ETag", std::string(file->etag)},
                                      // Fetched again each time, so that an update is seen at once.
                                      {"Cache-Control", "no-cache"},
                                      {"Content-Security-Policy", std::string(kPagePolicy)},
                                      {"X-Content-Type-Options", "nosniff"},
                                      {"Referrer-Policy", "no-referrer"}}};
  if (exchange.request.header("If-None-Match").find(file->etag) != std::string_view::npos)
    response.status = 304;
  else
    response.body = file->bytes;
  exchange.reply->send(std::move(response));
  return true;
}

}  // namespace tyto::api
