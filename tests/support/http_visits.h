// A server whose requests the test itself answers, one by one.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "serve/http/server.h"

namespace tyto::http {

constexpr auto kLongEnough = std::chrono::seconds(60);  // a loaded machine, with sanitizers

// Something that happens once, on another thread.
class Event {
 public:
  void happen() {
    const std::lock_guard lock(mutex_);
    ++times_;
    changed_.notify_all();
  }
  bool wait() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kLongEnough, [&] { return times_ > 0; });
  }
  int times() {
    const std::lock_guard lock(mutex_);
    return times_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int times_ = 0;
};

struct Visit {
  Request request;
  std::shared_ptr<Reply> reply;  // shared with the server, as handlers have it
};

class Visits {
 public:
  Handler handler() {
    return [this](Request request, std::shared_ptr<Reply> reply) {
      const std::lock_guard lock(mutex_);
      waiting_.push_back({std::move(request), std::move(reply)});
      came_.notify_all();
    };
  }
  Visit next() {
    std::unique_lock lock(mutex_);
    if (!came_.wait_for(lock, kLongEnough, [&] { return !waiting_.empty(); })) {
      ADD_FAILURE() << "no request came";
      return {};
    }
    Visit visit = std::move(waiting_.front());
    waiting_.pop_front();
    return visit;
  }

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::deque<Visit> waiting_;
};

inline std::string plain_error(int status, std::string_view, const std::string& message) {
  return std::to_string(status) + ": " + message;
}

inline ServerOptions on_free_port() {
  ServerOptions options;
  options.port = 0;
  return options;
}

// Answers with what it was asked.
inline void echo(Request request, const std::shared_ptr<Reply>& reply) {
  reply->send(
      {.type = "text/plain",
       .body = request.method + " " + request.path + " " + request.query + " " + request.body});
}

}  // namespace tyto::http
