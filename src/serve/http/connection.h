// One client's connection: reads its requests one after the other and writes their answers. Lives
// on the I/O thread.
#pragma once

#include <memory>
#include <variant>
#include <vector>

#include "serve/http/http_reply.h"
#include "serve/http/request_reader.h"

namespace boost::asio {
class io_context;
}

namespace tyto::http {

class Connection {
 public:
  virtual ~Connection() = default;

  // No more requests: closes it where none is being answered, lets the answer end else.
  virtual void drain() = 0;
  virtual void refuse(const Response& response) = 0;  // answers so and closes
  virtual void close() = 0;                           // now
};

// The server, as connections see it. All is called on the I/O thread.
class ConnectionOwner {
 public:
  virtual ~ConnectionOwner() = default;

  virtual std::variant<Admission, Response> admit(RequestHead head) = 0;
  // Has the handler answer it; answer_ended follows when the answer was sent or its client has
  // gone.
  virtual void answer(Request request, const AnswerForm& form, std::shared_ptr<Outbox> outbox) = 0;
  virtual void answer_ended() = 0;
  virtual void closed(Connection& connection) = 0;

  const ServerOptions options;
  const ErrorBody error_body;
  bool is_draining = false;
  // Where every connection reads to, one after the other: an idle one has no buffer of its own.
  std::vector<char> received;

 protected:
  ConnectionOwner(const ServerOptions& server_options, ErrorBody body)
      : options(server_options), error_body(body), received(64 << 10) {}
};

// Takes the socket, which must not block.
std::shared_ptr<Connection> open_connection(boost::asio::io_context& io, int socket,
                                            ConnectionOwner& owner);

}  // namespace tyto::http
