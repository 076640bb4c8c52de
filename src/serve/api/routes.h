// Paths to functions.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/json_value.h"
#include "serve/api/answer.h"
#include "serve/api/errors.h"
#include "serve/engine_thread.h"
#include "serve/http/http_reply.h"
#include "serve/http/server.h"
#include "serve/metrics.h"

namespace tyto::api {

// The server's API: every path and what answers it.

// JSON that others make; empty: there is none.
struct Views {
  std::unique_ptr<SlowView> doctor = {};
  std::function<std::string()> plan = {};
};

struct Api {
  EngineThread& engine;  // outlives every reply
  ServeMetrics& metrics;
  std::string version;  // which Tyto answers
  std::function<http::ServerCounts()> connections = {};
  Views views = {};
};

http::Handler make_handler(Api api);

// One request on its way to a function.
struct Exchange {
  const Api& api;
  http::Request request;
  std::shared_ptr<http::Reply> reply;  // shared with the connection, and with answers that run
  std::string name = {};               // what stood for {} in the path

  void send(const JsonValue& json) const { reply->send({.body = json_text(json)}); }
};

struct Route {
  std::string_view method;
  std::string_view path;            // {}: any text that is not empty
  void (*answer)(const Exchange&);  // an Error becomes an error's answer
};

inline constexpr std::string_view kDefaultTag = ":latest";  // what Ollama's names end with

// The model that a name means, with Ollama's ":latest" or without. Throws a RequestError: 404, or
// 503 while it is being loaded.
std::shared_ptr<const ModelText> find_model(const Api& api, const std::string& name);

// openai.cc
void answer_chat_completion(const Exchange&);
void answer_completion(const Exchange&);
void answer_embeddings(const Exchange&);
// ollama.cc
void answer_ollama_chat(const Exchange&);
void answer_ollama_generate(const Exchange&);
void answer_ollama_embed(const Exchange&);
void answer_ollama_embeddings(const Exchange&);
void answer_ollama_version(const Exchange&);
void answer_ollama_tags(const Exchange&);
void answer_ollama_show(const Exchange&);
void answer_ollama_running(const Exchange&);
// status_routes.cc
void answer_tokenize(const Exchange&);
void answer_detokenize(const Exchange&);
void answer_apply_template(const Exchange&);
// status_routes.cc
void answer_health(const Exchange&);
void answer_models(const Exchange&);
void answer_model(const Exchange&);
void answer_props(const Exchange&);
void answer_slots(const Exchange&);
void answer_metrics(const Exchange&);
void answer_doctor(const Exchange&);
void answer_plan(const Exchange&);
// status_routes.cc
void answer_receipts(const Exchange&);
void answer_receipt(const Exchange&);
void answer_profile_json(const Exchange&);
void answer_profile_page(const Exchange&);
void answer_dataflow(const Exchange&);
// status_routes.cc
bool answer_page_file(const Exchange&);  // false: there is no such file

}  // namespace tyto::api
