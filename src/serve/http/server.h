// HTTP/1.1 over TCP: connections, limits, time-outs, and who may speak to us.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "serve/http/exchange.h"

namespace tyto::http {

struct ServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 9377;                  // 0: one that is free
  std::optional<int> listening_fd = {};  // of systemd's socket activation, instead of host and port
  unsigned workers = 2;                  // threads that run the handler
  std::vector<std::string> api_keys = {};  // one of them must come along; empty: none is needed
  std::vector<std::string> open_paths = {"/health"};  // that need no key
  std::vector<std::string> allowed_hosts = {};  // in the Host header, beyond loopback's and `host`
  std::vector<std::string> allowed_origins = {};  // CORS; empty: off
  size_t most_connections = 2048;
  size_t most_header_bytes = 16 << 10;
  size_t most_body_bytes = 16 << 20;
  size_t most_unsent_bytes = 4 << 20;  // of a streamed answer that its client does not read
  std::chrono::milliseconds header_timeout = std::chrono::seconds(10);
  std::chrono::milliseconds body_timeout = std::chrono::seconds(30);
  std::chrono::milliseconds idle_timeout = std::chrono::seconds(120);  // between requests
  std::chrono::milliseconds write_timeout = std::chrono::seconds(30);
};

// What the server counts; for /metrics.
struct ServerCounts {
  uint64_t connections = 0;            // open now
  uint64_t accepted = 0, refused = 0;  // connections
  uint64_t requests = 0;
};

class Server {
 public:
  // Listens at once; throws an input Error naming host and port where it cannot. `error_body` makes
  // the body of an answer that no handler gave: 400, 401, 403, 408, 413, 421, 431, 500, 503.
  using ErrorBody = std::string (*)(int status, const std::string& message);
  Server(const ServerOptions& options, Handler handler, ErrorBody error_body);
  ~Server();  // closes what is still open

  uint16_t port() const;
  ServerCounts counts() const;
  void set_api_keys(std::vector<std::string> keys);  // from now on
  // Takes no more connections or requests: what comes is answered 503 with "connection: close".
  // Answers that have begun go on.
  void drain();
  // Whether every answer was given within the time.
  bool wait_idle(std::chrono::milliseconds most);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tyto::http
