// What a client is told when its request gets no answer: in OpenAI's words and in Ollama's.
#pragma once

#include <string>

#include "base/error.h"
#include "base/json_value.h"
#include "serve/http/http_reply.h"

namespace tyto::api {

// An Error that knows more than its kind: which field is to blame, or what clients call it.
class RequestError : public Error {
 public:
  // About a field ("messages[2].role"); empty: about the request as a whole.
  RequestError(const Error& error, std::string field);
  // With a status and a code that clients look for ("context_length_exceeded").
  RequestError(int http_status, std::string client_code, std::string field,
               const std::string& what);

  int status = 0;  // 0: what its kind gets
  std::string param;
  std::string name;  // what clients call it; may be empty
};

struct Refusal {
  int status = 500;
  std::string message = {};
  std::string param = {};
  std::string code = {};
};
Refusal refusal_of(const Error& error);
// The same for a request that the engine had taken: it was not one too many, so what may pass is a
// 503.
Refusal refusal_of_end(const Error& error);
std::string counted_as(const Refusal& refusal);  // the reason in /metrics

// {"error": {"message", "type", "param", "code"}}, and {"error": "message"}.
std::string openai_error(const Refusal& refusal);
std::string ollama_error(const Refusal& refusal);

// The bodies by path: Ollama's are below /api.
using ErrorText = std::string (*)(const Refusal&);
ErrorText error_text_for(std::string_view path);

http::Response error_response(const Refusal& refusal, ErrorText text);

// For http::Server, which has no more than this.
std::string error_body(int status, std::string_view path, const std::string& message);

// JSON as it goes over the wire: one line, and U+FFFD for what is no UTF-8.

inline std::string json_text(const JsonValue& json) {
  return json.dump();
}

inline JsonValue text_or_null(const std::string& text) {
  return text.empty() ? JsonValue(nullptr) : JsonValue(text);
}

}  // namespace tyto::api
