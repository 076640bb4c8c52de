#include "serve/http/server.h"

#include <algorithm>
#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <cerrno>
#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>

#include "serve/http/connection.h"
#include "serve/http/http_reply.h"
#include "serve/http/listener.h"
#include "serve/http/request_rules.h"

namespace tyto::http {
namespace asio = boost::asio;
namespace {

using boost::system::error_code;
using Descriptor = asio::posix::stream_descriptor;

// Beyond most_connections, so many are told so; the rest is closed without a word.
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

  // Of the I/O thread.
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
  // Closing our own socket would reset who was not accepted yet; a handed-over one is somebody
  // else's to serve.
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

}  // namespace tyto::http
