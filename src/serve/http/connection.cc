#include "serve/http/connection.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "serve/http/request_reader.h"

namespace tyto::http {
namespace asio = boost::asio;
namespace {

using boost::system::error_code;
using Socket = asio::generic::stream_protocol::socket;
using Clock = std::chrono::steady_clock;

constexpr size_t kMostAhead = 64 << 10;  // requests that are read before it is their turn
// How long a client may take to close a connection that we have closed. Closed at once, with bytes
// of the client unread, it would be reset, and the client would lose our last answer.
constexpr auto kLinger = std::chrono::seconds(1);
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

// What the beginning of a request says that was not read to the end of its head.
AnswerForm form_in_first_line(std::string_view bytes) {
  const std::string_view line = bytes.substr(0, bytes.find_first_of("\r\n"));
  const size_t method = line.find(' ');
  if (method == line.npos) return {};
  const std::string_view target = line.substr(method + 1);
  return {.is_head = line.starts_with("HEAD "),
          .path = std::string(path_in(target.substr(0, target.find(' '))))};
}

class HttpConnection final : public Connection,
                             public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(asio::io_context& io, int socket, ConnectionOwner& owner)
      : io_(io),
        socket_(io, asio::generic::stream_protocol(AF_UNSPEC, 0), socket),
        timer_(io),
        owner_(owner) {
    socket_.non_blocking(true);
  }

  void start();
  void drain() override;
  void refuse(const Response& response) override;
  void close() override;

 private:
  enum class Phase {
    reading,    // a request, or waiting for one
    answering,  // it is at the handler, or its answer is being written
    closing,    // the last answer is being written; what comes is thrown away
    closed,
  };

  // What a handler throws closes its connection, and no other.
  template <typename Action>
  void guarded(Action action) {
    try {
      action();
    } catch (...) {
      close();
    }
  }

  void wait_readable();
  void wait_writable();
  void receive();
  void advance();
  bool admit_head();
  void begin_answer();
  void answer_here(const Response& response);
  void refuse(int status, const std::string& message);
  void flush();
  void all_written();
  void end_answer();
  void shut_down();
  bool is_idle() const { return phase_ == Phase::reading && !reader_ && input_.empty(); }
  bool is_all_written() const { return written_ == output_.size(); }

  void set_deadline(Clock::duration from_now);
  void set_reading_deadline();
  void start_timer();
  void time_out();

  asio::io_context& io_;
  Socket socket_;
  asio::steady_timer timer_;
  Clock::time_point deadline_ = Clock::time_point::max();
  bool is_timer_running_ = false;
  ConnectionOwner& owner_;

  Phase phase_ = Phase::reading;
  bool is_waiting_to_read_ = false;
  bool is_waiting_to_write_ = false;
  std::string input_;                      // bytes that are not read yet
  std::unique_ptr<RequestReader> reader_;  // reads the request that is coming; null: none is
  std::optional<Admission> admission_;
  AnswerForm form_;                 // the answer's, as far as the request was read
  std::shared_ptr<Outbox> outbox_;  // the answer's; shared with what makes it
  std::string output_;              // on its way to the socket
  size_t written_ = 0;              // its bytes written
};

void HttpConnection::start() {
  set_reading_deadline();
  wait_readable();
}

// Reading: bytes to requests.

void HttpConnection::wait_readable() {
  const bool is_busy = phase_ == Phase::answering || !is_all_written();
  const bool is_full = is_busy && input_.size() >= kMostAhead;
  if (is_waiting_to_read_ || is_full || phase_ == Phase::closed) return;
  is_waiting_to_read_ = true;
  socket_.async_wait(Socket::wait_read, [self = shared_from_this()](const error_code& error) {
    self->is_waiting_to_read_ = false;
    if (error) return;
    self->guarded([&] {
      self->receive();
      self->wait_readable();
    });
  });
}

// Also while an answer is being made: a client that has gone is noticed here.
void HttpConnection::receive() {
  if (phase_ == Phase::closed) return;
  error_code error;
  const size_t bytes = socket_.read_some(asio::buffer(owner_.received), error);
  if (error == asio::error::would_block) return;
  if (error) return close();
  if (phase_ == Phase::closing) return;
  input_.append(owner_.received.data(), bytes);
  advance();
}

void HttpConnection::advance() {
  while (phase_ == Phase::reading && is_all_written() && !input_.empty()) {
    if (!reader_) {
      reader_ = std::make_unique<RequestReader>(owner_.options.most_header_bytes,
                                                owner_.options.most_body_bytes);
      form_ = {};
      set_reading_deadline();
    }
    const bool had_head = reader_->has_head();
    const size_t taken = reader_->read(input_);
    if (const auto& refusal = reader_->refusal()) return refuse(refusal->status, refusal->message);
    input_.erase(0, taken);
    if (!had_head && reader_->has_head() && !admit_head()) continue;
    if (reader_->is_complete())
      begin_answer();
    else if (taken == 0)
      return;
  }
}

// Whether the request is to be read on; it was answered here otherwise.
bool HttpConnection::admit_head() {
  RequestHead head = reader_->head();
  form_ = {.is_head = head.method == "HEAD",
           .is_http_1_0 = head.is_http_1_0,
           .path = std::string(path_in(head.target))};
  auto verdict = owner_.admit(std::move(head));
  if (const auto* response = std::get_if<Response>(&verdict)) {
    answer_here(*response);
    return false;
  }
  admission_ = std::get<Admission>(std::move(verdict));
  form_.cors = std::move(admission_->cors);
  form_.path = admission_->request.path;
  set_reading_deadline();
  if (admission_->expects_continue && !reader_->is_complete() && input_.empty()) {
    output_ += kContinue;
    flush();
  }
  return true;
}

// A refusal ends the connection, since a body may follow that is not to be read.
void HttpConnection::answer_here(const Response& response) {
  const bool may_go_on = response.status < 400 && reader_->is_complete() && !owner_.is_draining;
  if (!may_go_on) return refuse(response);
  reader_.reset();
  set_reading_deadline();
  output_ += whole_answer(response, form_, true);
  flush();
}

void HttpConnection::begin_answer() {
  if (owner_.is_draining) return refuse(503, "the server is shutting down");
  phase_ = Phase::answering;
  deadline_ = Clock::time_point::max();
  Admission admission = std::move(*std::exchange(admission_, {}));
  admission.request.body = reader_->take_body();
  reader_.reset();
  // The outbox forgets this when the answer was sent or the client has gone.
  outbox_ = std::make_shared<Outbox>(
      owner_.options.most_unsent_bytes, admission.keep_alive, [self = shared_from_this()] {
        asio::post(self->io_, [self] { self->guarded([&] { self->flush(); }); });
      });
  owner_.answer(std::move(admission.request), form_, outbox_);
}

// Writing: answers to bytes.

void HttpConnection::flush() {
  while (phase_ != Phase::closed) {
    if (outbox_ && outbox_->state().is_broken) return close();
    if (is_all_written()) {
      output_.clear();
      written_ = 0;
      if (outbox_) outbox_->take(output_);
      if (output_.empty()) return all_written();
    }
    error_code error;
    const size_t bytes = socket_.write_some(asio::buffer(output_) + written_, error);
    if (error == asio::error::would_block) return wait_writable();
    if (error) return close();
    written_ += bytes;
    if (is_waiting_to_write_) set_deadline(owner_.options.write_timeout);
  }
}

void HttpConnection::wait_writable() {
  if (is_waiting_to_write_) return;
  is_waiting_to_write_ = true;
  set_deadline(owner_.options.write_timeout);
  socket_.async_wait(Socket::wait_write, [self = shared_from_this()](const error_code& error) {
    self->is_waiting_to_write_ = false;
    if (error) return;
    self->guarded([&] {
      self->flush();
      self->advance();
      self->wait_readable();
    });
  });
}

void HttpConnection::all_written() {
  if (phase_ == Phase::closing) return shut_down();
  if (phase_ == Phase::reading) return set_reading_deadline();
  deadline_ = Clock::time_point::max();
  if (outbox_->state().is_complete) end_answer();
}

void HttpConnection::end_answer() {
  const bool keep_alive = outbox_->keep_alive() && !owner_.is_draining;
  std::exchange(outbox_, nullptr)->answered();
  owner_.answer_ended();
  if (!keep_alive) return shut_down();
  phase_ = Phase::reading;
  set_reading_deadline();
  advance();
  wait_readable();
}

// The end.

void HttpConnection::refuse(const Response& response) {
  phase_ = Phase::closing;
  reader_.reset();
  input_ = {};
  output_ += whole_answer(response, form_, false);
  flush();
}

void HttpConnection::refuse(int status, const std::string& message) {
  if (reader_ && !reader_->has_head()) form_ = form_in_first_line(input_);
  refuse(error_response(owner_.error_body, status, form_.path, message));
}

void HttpConnection::shut_down() {
  phase_ = Phase::closing;
  input_ = {};  // requests that came ahead of a close
  error_code ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
  set_deadline(kLinger);
  wait_readable();
}

void HttpConnection::close() {
  if (phase_ == Phase::closed) return;
  phase_ = Phase::closed;
  const auto self = shared_from_this();
  error_code ignored;
  socket_.close(ignored);
  timer_.cancel(ignored);
  if (outbox_) {
    try {
      std::exchange(outbox_, nullptr)->client_gone();
    } catch (...) {
      // The listener's own fault; the connection ends all the same.
    }
    owner_.answer_ended();
  }
  owner_.closed(*this);
}

void HttpConnection::drain() {
  guarded([&] {
    if (outbox_) outbox_->close_after();
    if (is_idle()) receive();  // a request that has just come deserves its 503
    if (is_idle()) close();
  });
}

// Time.

// The timer is not set again for each deadline; one that rings early looks at the deadline.
void HttpConnection::set_deadline(Clock::duration from_now) {
  deadline_ = Clock::now() + from_now;
  if (!is_timer_running_ || deadline_ < timer_.expiry()) start_timer();
}

void HttpConnection::set_reading_deadline() {
  const ServerOptions& options = owner_.options;
  set_deadline(!reader_              ? options.idle_timeout
               : reader_->has_head() ? options.body_timeout
                                     : options.header_timeout);
}

void HttpConnection::start_timer() {
  is_timer_running_ = true;
  timer_.expires_at(deadline_);
  timer_.async_wait([self = shared_from_this()](const error_code& error) {
    if (error || self->phase_ == Phase::closed) return;
    self->is_timer_running_ = false;
    if (self->deadline_ == Clock::time_point::max()) return;
    self->guarded([&] {
      if (Clock::now() < self->deadline_) return self->start_timer();
      self->time_out();
    });
  });
}

void HttpConnection::time_out() {
  const bool is_request_late = phase_ == Phase::reading && reader_ && is_all_written();
  if (!is_request_late) return close();
  refuse(408, "the request took too long to come");
}

}  // namespace

std::shared_ptr<Connection> open_connection(asio::io_context& io, int socket,
                                            ConnectionOwner& owner) {
  auto connection = std::make_shared<HttpConnection>(io, socket, owner);
  connection->start();
  return connection;
}

}  // namespace tyto::http
