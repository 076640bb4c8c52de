#include "serve/api/slow_view.h"

#include <fmt/format.h>

#include <condition_variable>
#include <system_error>
#include <utility>

#include "serve/thrown_error.h"

namespace tyto::api {

struct SlowView::Making {
  std::mutex mutex;
  std::condition_variable ended;
  bool is_over = false;
  std::string text;
  std::optional<Error> error;

  void run(const Make& make) {
    std::string made;
    std::optional<Error> thrown;
    try {
      made = make();
    } catch (...) {
      thrown = thrown_error("server");
    }
    const std::lock_guard lock(mutex);
    text = std::move(made);
    error = std::move(thrown);
    is_over = true;
    ended.notify_all();
  }
};

SlowView::~SlowView() {
  if (thread_.joinable()) thread_.join();
  if (maker_.joinable()) maker_.detach();  // it hangs, and has nothing of the view
}

void SlowView::ask(Done done) {
  std::unique_lock lock(mutex_);
  if (text_ && std::chrono::steady_clock::now() - made_ < kept_) {
    const std::string text = *text_;
    lock.unlock();
    return done(text, std::nullopt);
  }
  asked_.push_back(std::move(done));
  if (asked_.size() > 1) return;
  try {
    if (thread_.joinable()) thread_.join();  // it has nothing left to make
    thread_ = std::thread([this] { make_and_tell(); });
  } catch (const std::system_error& error) {
    asked_.clear();
    throw Error(ErrorCode::device, "server", fmt::format("it has no thread: {}", error.what()));
  }
}

std::string SlowView::wait_for_text() {
  if (!making_) {
    auto making = std::make_shared<Making>();
    maker_ = std::thread([making, make = make_] { making->run(make); });
    making_ = std::move(making);
  }
  {
    std::unique_lock lock(making_->mutex);
    if (!making_->ended.wait_for(lock, longest_, [&] { return making_->is_over; }))
      throw Error(ErrorCode::device, "server",
                  fmt::format("this has taken more than {} ms", longest_.count()), "ask later");
  }
  maker_.join();
  const auto made = std::exchange(making_, nullptr);
  if (made->error) throw *made->error;
  return made->text;
}

void SlowView::make_and_tell() {
  std::string text;
  std::optional<Error> error;
  try {
    text = wait_for_text();
  } catch (...) {
    error = thrown_error("server");
  }
  std::vector<Done> asked;
  {
    const std::lock_guard lock(mutex_);
    asked = std::exchange(asked_, {});
    made_ = std::chrono::steady_clock::now();
    text_.reset();
    if (!error) text_ = text;
  }
  for (const Done& done : asked) {
    try {
      done(text, error);
    } catch (...) {
      // Its answer is dropped, which tells the client.
    }
  }
}

}  // namespace tyto::api
