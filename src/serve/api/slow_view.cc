#include "serve/api/slow_view.h"

#include <system_error>
#include <utility>

#include "serve/thrown_error.h"

namespace tyto::api {

SlowView::~SlowView() {
  if (thread_.joinable()) thread_.join();
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

void SlowView::make_and_tell() {
  std::string text;
  std::optional<Error> error;
  try {
    text = make_();
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
