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
#include <condition_variable>
#include <cstring>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>

#include "base/error.h"
#include "serve/http/connection.h"
#include "serve/http/http_reply.h"
#include "serve/http/request_reader.h"

namespace tyto::http {
namespace asio = boost::asio;
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
