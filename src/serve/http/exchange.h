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

bool same_in_any_case(std::string_view a, std::string_view b);

struct Request {
  std::string method;    // "GET"; of a HEAD, too, whose answer is then sent without its body
  std::string path;      // percent-decoded UTF-8, without the query
  std::string query;     // as it came, without the question mark
  Headers headers = {};  // without those that carry keys
  std::string body = {};

  std::string_view header(std::string_view name) const;  // in any case; empty: there is none
};

struct Response {
  int status = 200;
  std::string type = "application/json";
  std::string body = {};
  Headers headers = {};  // go before the server's own of the same name
};

// Makes the body of an answer that no handler gave. The path is empty where none was read.
using ErrorBody = std::string (*)(int status, std::string_view path, const std::string& message);

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

  // Runs a task on a worker, some time later, for threads that must not wait for it. One that
  // throws is an exception of the handler.
  virtual void on_worker(std::function<void()> task) { task(); }

  // Called once if the client goes away before the answer is complete: from the server's I/O
  // thread, for which every connection waits, or at once where it has gone already. It must not
  // throw.
  virtual void on_gone(std::function<void()> gone) = 0;
};

// Called from a worker thread, or for a quick path from the I/O thread. It answers now, or keeps
// the reply and answers later; a reply that is dropped without an answer becomes a 500, and so does
// an exception; a stream that is dropped before its end is broken off, so that no client takes it
// for whole.
using Handler = std::function<void(Request, std::shared_ptr<Reply>)>;

}  // namespace tyto::http
