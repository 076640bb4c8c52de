// What may become of a request's head: it goes to the handler, or is answered here. server.h says
// what the rules are for.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "serve/http/exchange.h"
#include "serve/http/request_reader.h"
#include "serve/http/server.h"

namespace tyto::http {

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
  Headers cors = {};  // of the answer
};

std::variant<Admission, Response> admit(RequestHead head, const Rules& rules);

Response error_response(ErrorBody error_body, int status, std::string_view path,
                        const std::string& message, Headers headers = {});

// The path of a target that may be refused: without scheme, host and query, and not decoded.
std::string_view path_in(std::string_view target);

}  // namespace tyto::http
