// HTTP/1.1 over TCP: connections, limits, time-outs, and who may speak to us.
//
// One thread reads and writes for all connections, so that an idle one costs no thread; `workers`
// run the handler, but for what is quick (docs/decisions/010-http-library.md).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "serve/http/http_reply.h"

namespace tyto::http {

struct ServerOptions {
  std::string host = "127.0.0.1";        // or unix:/path of a socket
  uint16_t port = 9377;                  // 0: one that is free
  std::optional<int> listening_fd = {};  // by systemd's socket activation, instead of host and port
  unsigned workers = 2;                  // threads that run the handler
  std::vector<std::string> api_keys = {};  // one of them must come along; empty: none is needed
  std::vector<std::string> open_paths = {"/health", "/v1/health"};  // that need no key
  // Whose handler never waits: it runs on the I/O thread, whatever the workers do.
  std::vector<std::string> quick_paths = {"/health", "/v1/health"};
  std::vector<std::string> allowed_hosts = {};  // in the Host header, beyond loopback's and `host`
  std::vector<std::string> allowed_origins = {};  // CORS; empty: off; "*": every origin
  size_t most_connections = 2048;
  size_t most_header_bytes = 16 << 10;
  size_t most_body_bytes = 16 << 20;
  size_t most_unsent_bytes = 4 << 20;  // in a streamed answer that its client does not read
  std::chrono::milliseconds header_timeout = std::chrono::seconds(10);
  std::chrono::milliseconds body_timeout = std::chrono::seconds(30);
  std::chrono::milliseconds idle_timeout = std::chrono::seconds(120);  // between requests
  std::chrono::milliseconds write_timeout = std::chrono::seconds(30);  // without any progress
};

// Whether only this machine can reach the server: loopback's addresses and names, a unix
// socket. Says of listening_fd where that one listens.
bool is_local(const ServerOptions& options);

// What the server counts; for /metrics.
struct ServerCounts {
  uint64_t connections = 0;            // open now
  uint64_t accepted = 0, refused = 0;  // connections
  uint64_t requests = 0;               // whose head was understood, refused ones too
};

// Who may speak to us, beyond the key (`Authorization: Bearer KEY` or `x-api-key: KEY`):
//
// - A page of another site can have its own name resolved to our address (DNS rebinding), but the
//   Host header then still has that name. So Host must be one of loopback's names (localhost,
//   127.0.0.1, [::1], on any port), `host`, or in allowed_hosts, else 421. A server that listens on
//   every address (0.0.0.0, ::) also takes any Host that is an address, since no name can be
//   resolved to another there; and, where it has keys and no allowed_hosts, any name. On a unix
//   socket, which no browser reaches, any name will do unless there are allowed_hosts. HTTP/1.0
//   without Host is taken.
// - A request with an Origin is of a browser's script: it must be our own page's (the origin's
//   host:port is the Host) or one of allowed_origins, else 403. Only the latter get CORS headers.
//
// A client that closes its side of the connection while its answer is being made has gone, as most
// servers see it, even where only that side was closed (`nc -N`, shutdown(SHUT_WR)). A client that
// sends more than 64 KiB of further requests meanwhile is not read until the answer is complete,
// and its going is noticed at the next write.
class Server {
 public:
  using ErrorBody = http::ErrorBody;
  // Listens at once; throws an input Error naming host and port where it cannot. `error_body` makes
  // the body of an answer that no handler gave: 400, 401, 403, 408, 413, 417, 421, 431, 500, 503.
  Server(const ServerOptions& options, Handler handler, ErrorBody error_body);
  ~Server();  // closes what is still open; waits for handlers that run

  uint16_t port() const;        // 0 for a unix socket
  std::string address() const;  // "127.0.0.1:9377", "[::1]:9377", "unix:/path"
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

// A socket that listens, where the options say.

struct ListenAddress {
  std::string host;   // "127.0.0.1", "::1", "unix:/path"
  uint16_t port = 0;  // 0 for a unix socket
};

std::string text_of(const ListenAddress& address);  // "[::1]:9377"

class Listener {
 public:
  explicit Listener(const ServerOptions& options);  // throws an input Error
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  const ListenAddress& address() const { return address_; }
  int fd() const { return fd_; }  // does not block
  // A socket that was handed to us goes on to take connections when we do not.
  bool is_own() const { return is_own_; }
  // A connection that waits, or -1 with errno. Does not block, nor does what it returns.
  int accept() const;
  void close();

 private:
  int fd_ = -1;
  bool is_own_ = true;
  ListenAddress address_;
};

}  // namespace tyto::http
