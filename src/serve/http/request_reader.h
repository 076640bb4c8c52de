// Bytes of a connection to a request: first its head, then its body. Knows no sockets.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "serve/http/http_reply.h"
#include "serve/http/server.h"

namespace tyto::http {

struct RequestHead {
  std::string method;
  std::string target;  // as it came
  bool is_http_1_0 = false;
  Headers headers = {};
};

struct Refusal {
  int status = 400;
  std::string message;
};

// Reads one request.
class RequestReader {
 public:
  RequestReader(size_t most_header_bytes, size_t most_body_bytes);
  ~RequestReader();

  // Reads from the beginning of `bytes` and says how many are done with; the others are to come
  // again, with more behind them. Stops after the head, once. Reading on after a refusal or behind
  // the end is a mistake.
  size_t read(std::string_view bytes);

  bool has_head() const;
  bool is_complete() const;
  const std::optional<Refusal>& refusal() const { return refusal_; }

  RequestHead head() const;
  std::string take_body();

 private:
  struct Parser;
  size_t read_head(std::string_view bytes);
  size_t read_body(std::string_view bytes);

  size_t most_header_bytes_;
  std::unique_ptr<Parser> parser_;
  size_t searched_ = 0;  // where the head's end is not
  std::optional<Refusal> refusal_;
};

// What may become of a request's head: it goes to the handler, or is answered here. server.h says
// what the rules are for.

struct Rules {
  std::vector<std::string> hosts;  // names and addresses, perhaps with a port
  std::vector<std::string> allowed_origins;
  std::vector<std::string> open_paths;
  std::vector<std::string> key_digests;
  bool are_hosts_limited = false;  // there are allowed_hosts
  bool is_wildcard = false;        // listens on every address
  bool is_unix = false;
  ErrorBody error_body = nullptr;
};

// `bound_host` is the address that the server listens on, which `options.host` may be a name of.
Rules make_rules(const ServerOptions& options, const std::string& bound_host, ErrorBody error_body);

std::vector<std::string> digests_of(const std::vector<std::string>& keys);

struct Admission {
  Request request = {};  // its body is still to come
  bool keep_alive = true;
  bool expects_continue = false;
  Headers cors = {};  // go into the answer
};

std::variant<Admission, Response> admit(RequestHead head, const Rules& rules);

Response error_response(ErrorBody error_body, int status, std::string_view path,
                        const std::string& message, Headers headers = {});

// The path of a target that may be refused: without scheme, host and query, and not decoded.
std::string_view path_in(std::string_view target);

}  // namespace tyto::http
