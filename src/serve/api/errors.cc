#include "serve/api/errors.h"

#include "serve/api/requests.h"

namespace tyto::api {
namespace {

constexpr int kTooMany = 429, kUnavailable = 503, kTimeout = 504;
constexpr const char* kRetrySeconds = "1";  // a running answer ends about that often

int status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::input:
    case ErrorCode::usage:
    case ErrorCode::unsupported:
      return 400;
    case ErrorCode::busy:
      return kTooMany;
    case ErrorCode::deadline:
      return kTimeout;
    case ErrorCode::device:
    case ErrorCode::require:
      break;
  }
  return 500;
}

const char* type_of(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 408:
    case kTimeout:
      return "timeout_error";
    case kTooMany:
      return "rate_limit_error";
    default:
      return status < 500 ? "invalid_request_error" : "server_error";
  }
}

// Errors of a request's JSON begin with their field: "request: tools[0].function: ...".
std::string field_named_in(std::string_view message) {
  const std::string prefix = fmt::format("{}: ", kRequestName);
  if (!message.starts_with(prefix)) return "";
  message.remove_prefix(prefix.size());
  const size_t end = message.find(": ");
  return end == message.npos ? "" : std::string(message.substr(0, end));
}

}  // namespace

RequestError::RequestError(const Error& error, std::string field)
    : Error(error), param(std::move(field)) {}

RequestError::RequestError(int http_status, std::string client_code, std::string field,
                           const std::string& what)
    : Error(ErrorCode::input, field, what),
      status(http_status),
      param(std::move(field)),
      name(std::move(client_code)) {}

Refusal refusal_of(const Error& error) {
  Refusal refusal{.status = status_of(error.code), .message = error.what()};
  // A busy server's next step is Retry-After, which clients turn into words of their own.
  if (!error.hint.empty() && error.code != ErrorCode::busy) refusal.message += "; " + error.hint;
  if (error.code == ErrorCode::unsupported) refusal.code = "unsupported";
  if (refusal.status == kTooMany) refusal.code = "too_many_requests";
  if (refusal.status == kTimeout) refusal.code = "timeout";
  if (const auto* known = dynamic_cast<const RequestError*>(&error)) {
    if (known->status != 0) refusal.status = known->status;
    if (!known->name.empty()) refusal.code = known->name;
    refusal.param = known->param;
  } else {
    refusal.param = field_named_in(refusal.message);
  }
  return refusal;
}

Refusal refusal_of_end(const Error& error) {
  Refusal refusal = refusal_of(error);
  if (refusal.status != kTooMany) return refusal;
  refusal.status = kUnavailable;
  refusal.code = "unavailable";
  return refusal;
}

std::string counted_as(const Refusal& refusal) {
  return refusal.code.empty() ? "bad request" : refusal.code;
}

std::string openai_error(const Refusal& refusal) {
  return json_text({{"error",
                     {{"message", refusal.message},
                      {"type", type_of(refusal.status)},
                      {"param", text_or_null(refusal.param)},
                      {"code", text_or_null(refusal.code)}}}});
}

std::string ollama_error(const Refusal& refusal) {
  return json_text({{"error", refusal.message}});
}

ErrorText error_text_for(std::string_view path) {
  return path == "/api" || path.starts_with("/api/") ? ollama_error : openai_error;
}

http::Response error_response(const Refusal& refusal, ErrorText text) {
  http::Response response{.status = refusal.status, .body = text(refusal)};
  if (refusal.status == kTooMany || refusal.status == kUnavailable)
    response.headers.emplace_back("Retry-After", kRetrySeconds);
  return response;
}

std::string error_body(int status, std::string_view path, const std::string& message) {
  return error_text_for(path)({.status = status, .message = message});
}

}  // namespace tyto::api
