#include "serve/api/routes.h"

#include <algorithm>
#include <optional>

#include "base/spelling.h"
#include "serve/api/errors.h"

namespace tyto::api {
namespace {

// The longer one of paths that could both be meant stands first.
constexpr Route kRoutes[] = {
    {"GET", "/health", answer_health},
    {"GET", "/v1/health", answer_health},
    {"GET", "/v1/models", answer_models},
    {"GET", "/v1/models/{}", answer_model},
    {"POST", "/v1/chat/completions", answer_chat_completion},
    {"POST", "/v1/completions", answer_completion},
    {"POST", "/v1/embeddings", answer_embeddings},
    {"POST", "/tokenize", answer_tokenize},
    {"POST", "/detokenize", answer_detokenize},
    {"POST", "/apply-template", answer_apply_template},
    {"GET", "/props", answer_props},
    {"GET", "/slots", answer_slots},
    {"GET", "/metrics", answer_metrics},
    {"GET", "/doctor", answer_doctor},
    {"GET", "/plan", answer_plan},
    {"GET", "/v1/receipts", answer_receipts},
    {"GET", "/v1/receipts/{}/profile.json", answer_profile_json},
    {"GET", "/v1/receipts/{}/profile.html", answer_profile_page},
    {"GET", "/v1/receipts/{}/dataflow.svg", answer_dataflow},
    {"GET", "/v1/receipts/{}", answer_receipt},
    {"GET", "/api/version", answer_ollama_version},
    {"GET", "/api/tags", answer_ollama_tags},
    {"GET", "/api/ps", answer_ollama_running},
    {"POST", "/api/show", answer_ollama_show},
    {"POST", "/api/chat", answer_ollama_chat},
    {"POST", "/api/generate", answer_ollama_generate},
    {"POST", "/api/embed", answer_ollama_embed},
    {"POST", "/api/embeddings", answer_ollama_embeddings},
};

// What stands for {}, or an empty text; nullopt: the path is another.
std::optional<std::string> match(std::string_view pattern, std::string_view path) {
  const size_t at = pattern.find("{}");
  if (at == pattern.npos) return path == pattern ? std::optional<std::string>("") : std::nullopt;
  const std::string_view before = pattern.substr(0, at), behind = pattern.substr(at + 2);
  if (path.size() <= before.size() + behind.size() || !path.starts_with(before) ||
      !path.ends_with(behind))
    return std::nullopt;
  return std::string(path.substr(at, path.size() - before.size() - behind.size()));
}

void refuse_method(const Exchange& exchange, const std::string& allowed) {
  const std::string& path = exchange.request.path;
  const Refusal refusal{.status = 405,
                        .message = fmt::format("{} takes {}", path, allowed),
                        .code = "method_not_allowed"};
  http::Response response = error_response(refusal, error_text_for(path));
  response.headers.emplace_back("Allow", allowed);
  exchange.reply->send(std::move(response));
}

void answer(Exchange& exchange) {
  std::string allowed;
  for (const Route& route : kRoutes) {
    const auto name = match(route.path, exchange.request.path);
    if (!name) continue;
    if (route.method != exchange.request.method) {
      allowed = route.method;
      continue;
    }
    exchange.name = *name;
    return route.answer(exchange);
  }
  if (!allowed.empty()) return refuse_method(exchange, allowed);
  if (exchange.request.method != "GET" || !answer_page_file(exchange))
    throw RequestError(404, "not_found", "",
                       fmt::format("there is no {} here", exchange.request.path));
}

std::string served_name(const std::vector<std::string>& names, const std::string& asked) {
  if (asked.empty()) return asked;
  const std::string tag(kDefaultTag);
  const std::string plain = asked.ends_with(tag) ? asked.substr(0, asked.size() - tag.size()) : "";
  for (const std::string& name : {asked, plain, asked + tag})
    if (std::find(names.begin(), names.end(), name) != names.end()) return name;
  throw RequestError(404, "model_not_found", "model",
                     fmt::format("'{}' is not served here; there is {}", asked, joined(names)));
}

}  // namespace

std::shared_ptr<const ModelText> find_model(const Api& api, const std::string& name) {
  const std::string served = served_name(api.engine.names(), name);
  try {
    return api.engine.text(served);
  } catch (const Error& error) {
    if (error.code != ErrorCode::busy) throw;
    throw RequestError(503, "model_loading", "", error.what());
  }
}

http::Handler make_handler(Api api) {
  const auto shared = std::make_shared<const Api>(std::move(api));  // by calls that run at once
  return [shared](http::Request request, std::shared_ptr<http::Reply> reply) {
    Exchange exchange{.api = *shared, .request = std::move(request), .reply = std::move(reply)};
    try {
      answer(exchange);
    } catch (const Error& error) {
      const bool ends = shared->engine.is_draining();
      const Refusal refusal = ends ? refusal_of_end(error) : refusal_of(error);
      if (exchange.request.method == "POST") shared->metrics.refused(counted_as(refusal));
      exchange.reply->send(error_response(refusal, error_text_for(exchange.request.path)));
    }
  };
}

}  // namespace tyto::api
