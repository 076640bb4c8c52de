#include "serve/http/server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>

#include "base/error.h"
#include "serve/http/http_reply.h"
#include "serve/http/request_reader.h"

namespace tyto::http {
namespace asio = boost::asio;

// One client's connection: reads its requests one after the other and writes their answers. Lives
// on the I/O thread.

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

namespace {

using boost::system::error_code;
using Socket = asio::generic::stream_protocol::socket;
using Clock = std::chrono::steady_clock;

constexpr size_t kMostAhead = 64 << 10;  // requests that are read before it is their turn
// How long a client may take to close a connection that we have closed. If we closed the socket
// while bytes from the client were unread, the kernel would reset the connection, and the client
// would lose our last answer.
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

namespace {

using boost::system::error_code;
using Descriptor = asio::posix::stream_descriptor;

// As many beyond most_connections are told so; the rest is closed without a word.
constexpr size_t kMostRefusals = 64;
// Without file descriptors nothing can be accepted, and what waits goes on to wait.
constexpr auto kPauseAfterFailure = std::chrono::milliseconds(100);

// Answers that are being made or sent.
class AnswerCount {
 public:
  void begin() {
    const std::lock_guard lock(mutex_);
    ++count_;
  }
  void end() {
    const std::lock_guard lock(mutex_);
    if (--count_ == 0) is_zero_.notify_all();
  }
  bool wait_zero(std::chrono::milliseconds most) {
    std::unique_lock lock(mutex_);
    return is_zero_.wait_for(lock, most, [&] { return count_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable is_zero_;
  uint64_t count_ = 0;
};

HttpReply::RunOnWorker run_on(const std::weak_ptr<asio::thread_pool>& workers) {
  return [workers](std::function<void()> task) {
    const auto there = workers.lock();
    if (!there) return;
    asio::post(*there, [task = std::move(task)] {
      try {
        task();
      } catch (...) {
        // The reply goes with the task, which tells the client.
      }
    });
  };
}

}  // namespace

struct Server::State final : ConnectionOwner {
  State(const ServerOptions& server_options, Handler request_handler, ErrorBody body);
  ~State() override;

  std::variant<Admission, Response> admit(RequestHead head) override;
  void answer(Request request, const AnswerForm& form, std::shared_ptr<Outbox> outbox) override;
  void answer_ended() override { answers.end(); }
  void closed(Connection& connection) override;

  void wait_for_clients();
  bool accept_waiting();
  void take(int socket);
  void stop_listening();
  void drain();
  void run_io();
  void run_on_io_thread(const std::function<void()>& task);

  const Handler handler;
  std::mutex rules_mutex;
  Rules rules;
  AnswerCount answers;
  std::atomic<uint64_t> open = 0, accepted = 0, refused = 0, requests = 0;

  // For the I/O thread.
  Listener listener;
  const ListenAddress address = listener.address();
  asio::io_context io{1};
  Descriptor waiting_clients{io};
  asio::steady_timer pause{io};
  std::unordered_map<Connection*, std::shared_ptr<Connection>> connections;

  asio::executor_work_guard<asio::io_context::executor_type> keeps_running{io.get_executor()};
  // Shared, so that replies that outlive the server find that it has gone.
  const std::shared_ptr<asio::thread_pool> workers;
  std::thread io_thread;
};

Server::State::State(const ServerOptions& server_options, Handler request_handler, ErrorBody body)
    : ConnectionOwner(server_options, body),
      handler(std::move(request_handler)),
      listener(options),
      workers(std::make_shared<asio::thread_pool>(std::max(1u, options.workers))) {
  rules = make_rules(options, address.host, error_body);
  waiting_clients.assign(listener.fd());
  wait_for_clients();
  io_thread = std::thread([this] { run_io(); });
}

Server::State::~State() {
  run_on_io_thread([this] {
    stop_listening();
    for (const auto& [key, connection] : std::exchange(connections, {})) connection->close();
  });
  keeps_running.reset();
  io_thread.join();
  workers->stop();  // who waits for a worker has gone
  workers->join();
}

// What handlers of connections throw is theirs to catch; nothing else ends the thread, either.
void Server::State::run_io() {
  for (bool is_over = false; !is_over;) {
    try {
      io.run();
      is_over = true;
    } catch (...) {
      // The others go on.
    }
  }
}

void Server::State::run_on_io_thread(const std::function<void()>& task) {
  std::promise<void> done;
  asio::post(io, [&] {
    try {
      task();
    } catch (...) {
      // What it left open is closed with the server.
    }
    done.set_value();
  });
  done.get_future().wait();
}

// Connections.

void Server::State::wait_for_clients() {
  waiting_clients.async_wait(Descriptor::wait_read, [this](const error_code& error) {
    if (error) return;
    if (accept_waiting()) return wait_for_clients();
    pause.expires_after(kPauseAfterFailure);
    pause.async_wait([this](const error_code& stopped) {
      if (!stopped) wait_for_clients();
    });
  });
}

// False: there may be more, and they cannot be accepted.
bool Server::State::accept_waiting() try {
  for (;;) {
    const int socket = listener.accept();
    if (socket >= 0)
      take(socket);
    else if (errno != ECONNABORTED && errno != EINTR)
      return errno == EAGAIN;
  }
} catch (...) {  // for want of memory, say
  return false;
}

void Server::State::take(int socket) {
  const bool is_one_too_many = connections.size() >= options.most_connections;
  const auto connection = open_connection(io, socket, *this);
  connections.emplace(connection.get(), connection);
  open = connections.size();
  ++(is_one_too_many ? refused : accepted);
  if (connections.size() > options.most_connections + kMostRefusals)
    connection->close();
  else if (is_one_too_many)
    connection->refuse(error_response(error_body, 503, "", "the server has too many connections"));
}

void Server::State::closed(Connection& connection) {
  connections.erase(&connection);
  open = connections.size();
}

void Server::State::stop_listening() {
  if (!waiting_clients.is_open()) return;
  waiting_clients.release();
  pause.cancel();
  listener.close();
}

void Server::State::drain() {
  is_draining = true;
  // Closing our own socket would reset clients that were not accepted yet; a handed-over one is for
  // another process to serve.
  if (waiting_clients.is_open() && listener.is_own()) accept_waiting();
  stop_listening();
  const auto all = connections;
  for (const auto& [key, connection] : all) connection->drain();
}

// Requests.

std::variant<Admission, Response> Server::State::admit(RequestHead head) {
  ++requests;
  const std::lock_guard lock(rules_mutex);
  return http::admit(std::move(head), rules);
}

void Server::State::answer(Request request, const AnswerForm& form,
                           std::shared_ptr<Outbox> outbox) {
  answers.begin();
  // Shared by the handler, who may keep it, and by the worker, for whom it is what is left to
  // complain to.
  auto reply = std::make_shared<HttpReply>(std::move(outbox), form, error_body, run_on(workers));
  const auto& quick = options.quick_paths;
  const bool is_quick = std::find(quick.begin(), quick.end(), request.path) != quick.end();
  auto answering = [this, request = std::move(request), reply = std::move(reply)]() mutable {
    try {
      handler(std::move(request), reply);
    } catch (const std::exception& error) {
      reply->fail(error.what());
    } catch (...) {
      reply->fail("an exception of an unknown kind was thrown");
    }
  };
  if (is_quick) return answering();
  asio::post(*workers, std::move(answering));
}

Server::Server(const ServerOptions& options, Handler handler, ErrorBody error_body)
    : state_(std::make_unique<State>(options, std::move(handler), error_body)) {}

Server::~Server() = default;

uint16_t Server::port() const {
  return state_->address.port;
}

std::string Server::address() const {
  return text_of(state_->address);
}

ServerCounts Server::counts() const {
  return {.connections = state_->open,
          .accepted = state_->accepted,
          .refused = state_->refused,
          .requests = state_->requests};
}

void Server::set_api_keys(std::vector<std::string> keys) {
  const std::lock_guard lock(state_->rules_mutex);
  state_->rules.key_digests = digests_of(keys);
}

void Server::drain() {
  state_->run_on_io_thread([this] { state_->drain(); });
}

bool Server::wait_idle(std::chrono::milliseconds most) {
  return state_->answers.wait_zero(most);
}

namespace {

constexpr std::string_view kUnix = "unix:";
constexpr int kBacklog = 1024;  // a thousand clients that come at once

ListenAddress wanted_address(const ServerOptions& options) {
  return {options.host, options.host.starts_with(kUnix) ? uint16_t{0} : options.port};
}

[[noreturn]] void fail_listen(const ListenAddress& address, const std::string& why) {
  throw Error(ErrorCode::input, text_of(address), fmt::format("cannot listen: {}", why),
              "choose another --host or --port, or stop what listens there");
}

void set_option(int fd, int level, int option, int value) {
  setsockopt(fd, level, option, &value, sizeof value);
}

sockaddr_un unix_address(const ListenAddress& wanted) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = wanted.host.substr(kUnix.size());
  if (path.empty() || path.size() >= sizeof address.sun_path)
    fail_listen(wanted,
                fmt::format("a socket's path has 1 to {} bytes", sizeof address.sun_path - 1));
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

// A server that was killed leaves its socket behind, where no process answers.
void remove_stale(const sockaddr_un& address) {
  struct stat status{};
  if (lstat(address.sun_path, &status) != 0 || !S_ISSOCK(status.st_mode)) return;
  const int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
      errno == ECONNREFUSED)
    unlink(address.sun_path);
  close(probe);
}

// A socket bound to the address, or -1 with errno.
int listen_at(int family, const sockaddr* address, socklen_t size) {
  const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  if (family == AF_INET6) set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);  // "::" is all addresses
  if (bind(fd, address, size) == 0 && listen(fd, kBacklog) == 0) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

int listen_on_unix(const ListenAddress& wanted) {
  const sockaddr_un address = unix_address(wanted);
  remove_stale(address);
  const int fd = listen_at(AF_UNIX, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  if (fd < 0) fail_listen(wanted, std::strerror(errno));
  return fd;
}

int listen_on_network(const ListenAddress& wanted) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int failure =
      getaddrinfo(wanted.host.c_str(), std::to_string(wanted.port).c_str(), &hints, &found);
  if (failure != 0) fail_listen(wanted, gai_strerror(failure));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
  for (const addrinfo* one = found; one; one = one->ai_next) {
    const int fd = listen_at(one->ai_family, one->ai_addr, one->ai_addrlen);
    if (fd >= 0) return fd;
  }
  fail_listen(wanted, std::strerror(errno));
}

int handed_over(int fd) {
  int is_listening = 0;
  socklen_t size = sizeof is_listening;
  if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &size) != 0 || !is_listening)
    fail_input(fmt::format("file descriptor {}", fd), "is not a socket that listens");
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  return fd;
}

ListenAddress address_of(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  if (getsockname(fd, address, &size) != 0) return {};
  if (storage.ss_family == AF_UNIX)
    return {std::string(kUnix) + reinterpret_cast<sockaddr_un*>(address)->sun_path};
  std::array<char, NI_MAXHOST> host{};
  getnameinfo(address, size, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST);
  const in_port_t port = storage.ss_family == AF_INET6
                             ? reinterpret_cast<sockaddr_in6*>(address)->sin6_port
                             : reinterpret_cast<sockaddr_in*>(address)->sin_port;
  return {host.data(), ntohs(port)};
}

}  // namespace

std::string text_of(const ListenAddress& address) {
  if (address.host.starts_with(kUnix)) return address.host;
  const bool has_colon = address.host.find(':') != std::string::npos;
  return fmt::format(fmt::runtime(has_colon ? "[{}]:{}" : "{}:{}"), address.host, address.port);
}

Listener::Listener(const ServerOptions& options) : is_own_(!options.listening_fd) {
  const ListenAddress wanted = wanted_address(options);
  if (options.listening_fd)
    fd_ = handed_over(*options.listening_fd);
  else if (wanted.host.starts_with(kUnix))
    fd_ = listen_on_unix(wanted);
  else
    fd_ = listen_on_network(wanted);
  address_ = address_of(fd_);
}

Listener::~Listener() {
  close();
}

int Listener::accept() const {
  const int fd = accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  // A token is a small packet, and must not wait for the next one to fill it up.
  if (fd >= 0) set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  return fd;
}

void Listener::close() {
  if (fd_ < 0) return;
  if (is_own_ && address_.host.starts_with(kUnix)) unlink(address_.host.c_str() + kUnix.size());
  ::close(fd_);
  fd_ = -1;
}

bool is_local(const ServerOptions& options) {
  const std::string host =
      options.listening_fd ? address_of(*options.listening_fd).host : options.host;
  return host.starts_with(kUnix) || host == "localhost" || host == "::1" ||
         (host.starts_with("127.") && inet_addr(host.c_str()) != INADDR_NONE);
}

}  // namespace tyto::http
