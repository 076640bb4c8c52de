#include "serve/http/outbox.h"

#include <utility>

namespace tyto::http {

Outbox::Outbox(size_t most_unsent, bool keep_alive, std::function<void()> wake)
    : most_unsent_(most_unsent), keep_alive_(keep_alive), wake_(std::move(wake)) {}

void Outbox::put(std::string_view bytes, Kind kind) {
  std::function<void()> not_gone;  // is destroyed without the lock: anything may hang on it
  const std::lock_guard lock(mutex_);
  if (is_gone_ || state_.is_broken || state_.is_complete) return;
  // One large piece is no backlog, however large.
  if (bytes_.size() > most_unsent_ && kind == Kind::part) return break_now();
  bytes_ += bytes;
  if (kind == Kind::last) {
    state_.is_complete = true;
    not_gone = std::exchange(gone_, nullptr);
  }
  if (!std::exchange(is_woken_, true)) wake_();
}

void Outbox::break_off() {
  const std::lock_guard lock(mutex_);
  if (!is_gone_ && !state_.is_broken && !state_.is_complete) break_now();
}

// A connection that was woken before may be waiting for its client, with nothing taken since.
void Outbox::break_now() {
  state_.is_broken = true;
  wake_();
}

void Outbox::on_gone(std::function<void()> gone) {
  {
    const std::lock_guard lock(mutex_);
    if (!is_gone_) {
      if (!state_.is_complete) gone_ = std::move(gone);
      return;
    }
    if (state_.is_complete) return;
  }
  gone();
}

Outbox::State Outbox::take(std::string& into) {
  const std::lock_guard lock(mutex_);
  into.clear();
  into.swap(bytes_);
  is_woken_ = false;
  return state_;
}

Outbox::State Outbox::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

void Outbox::client_gone() {
  std::function<void()> gone, wake;
  {
    const std::lock_guard lock(mutex_);
    is_gone_ = true;
    gone = std::exchange(gone_, nullptr);
    wake = std::exchange(wake_, nullptr);
    bytes_ = {};
  }
  if (gone) gone();
}

void Outbox::answered() {
  const std::lock_guard lock(mutex_);
  is_gone_ = true;
  wake_ = nullptr;
}

void Outbox::close_after() {
  const std::lock_guard lock(mutex_);
  keep_alive_ = false;
}

bool Outbox::keep_alive() const {
  const std::lock_guard lock(mutex_);
  return keep_alive_;
}

}  // namespace tyto::http
