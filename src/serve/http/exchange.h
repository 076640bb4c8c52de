// One HTTP request and its answer, free of sockets: what handlers see.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tyto::http {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Request {
  std::string method;  // "GET"
  std::string path;    // percent-decoded, without the query
  std::string query;   // as it came, without the question mark
  Headers headers = {};
  std::string body = {};

  std::string_view header(std::string_view name) const;  // in any case; empty: there is none
};

struct Response {
  int status = 200;
  std::string type = "application/json";
  std::string body = {};
  Headers headers = {};
};

// Where an answer goes. Any thread may use it, one at a time; it outlives the connection. After the
// client has gone everything is accepted and dropped.
class Reply {
 public:
  virtual ~Reply() = default;

  virtual void send(Response response) = 0;  // the whole answer

  // In pieces, as they come: begin, write as often as needed, finish.
  virtual void begin(int status, std::string type, Headers headers) = 0;
  virtual void write(std::string piece) = 0;
  virtual void finish() = 0;

  // Called once, from another thread, if the client goes away before the answer is complete; at
  // once where it has gone already.
  virtual void on_gone(std::function<void()> gone) = 0;
};

// Called from a worker thread. It answers now, or keeps the reply and answers later; a reply that
// is dropped without an answer becomes a 500.
using Handler = std::function<void(Request, std::shared_ptr<Reply>)>;

}  // namespace tyto::http
