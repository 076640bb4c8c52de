#include "serve/http/http_reply.h"

#include <utility>

#include "serve/http/request_rules.h"

namespace tyto::http {

HttpReply::HttpReply(std::shared_ptr<Outbox> outbox, AnswerForm form, ErrorBody error_body,
                     RunOnWorker run_on_worker)
    : outbox_(std::move(outbox)),
      form_(std::move(form)),
      error_body_(error_body),
      run_on_worker_(std::move(run_on_worker)) {}

HttpReply::~HttpReply() {
  fail("the request was dropped without an answer");
}

void HttpReply::send(Response response) {
  const std::lock_guard lock(mutex_);
  if (stage_ == Stage::unanswered) send_whole(response);
}

// Complete only once it is: where there is no memory for an answer there may be for a shorter one.
void HttpReply::send_whole(const Response& response) {
  outbox_->put(whole_answer(response, form_, outbox_->keep_alive()), Outbox::Kind::last);
  stage_ = Stage::complete;
}

void HttpReply::begin(int status, std::string type, Headers headers) {
  const std::lock_guard lock(mutex_);
  if (stage_ != Stage::unanswered) return;
  stage_ = Stage::streaming;
  outbox_->put(stream_head(status, type, headers, form_, outbox_->keep_alive()),
               Outbox::Kind::part);
}

void HttpReply::write(std::string piece) {
  const std::lock_guard lock(mutex_);
  if (stage_ == Stage::streaming) outbox_->put(stream_piece(piece, form_), Outbox::Kind::part);
}

void HttpReply::finish() {
  const std::lock_guard lock(mutex_);
  if (stage_ != Stage::streaming) return;
  stage_ = Stage::complete;
  outbox_->put(stream_end(form_), Outbox::Kind::last);
}

void HttpReply::on_worker(std::function<void()> task) {
  if (!run_on_worker_) return task();
  run_on_worker_(std::move(task));
}

void HttpReply::on_gone(std::function<void()> gone) {
  outbox_->on_gone(std::move(gone));
}

void HttpReply::fail(std::string_view message) noexcept try {
  const std::lock_guard lock(mutex_);
  if (stage_ == Stage::complete) return;
  const bool is_unanswered = stage_ == Stage::unanswered;
  stage_ = Stage::complete;
  if (!is_unanswered || !send_error(message)) outbox_->break_off();
} catch (...) {
  // Not even the connection could be told; it ends with its client or with the server.
}

// False: there is no memory for the words.
bool HttpReply::send_error(std::string_view message) try {
  send_whole(error_response(error_body_, 500, form_.path, std::string(message)));
  return true;
} catch (...) {
  return false;
}

}  // namespace tyto::http
