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

HttpReply::~HttpReply() try { fail("the request was dropped without an answer"); } catch (...) {
  // No memory for these words; the connection is closed by its time-out.
  return;
}

void HttpReply::send(Response response) {
  const std::lock_guard lock(mutex_);
  if (stage_ == Stage::unanswered) send_whole(response);
}

void HttpReply::send_whole(const Response& response) {
  stage_ = Stage::complete;
  outbox_->put(whole_answer(response, form_, outbox_->keep_alive()), Outbox::Kind::last);
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

void HttpReply::fail(const std::string& message) {
  const std::lock_guard lock(mutex_);
  if (stage_ == Stage::unanswered)
    send_whole(error_response(error_body_, 500, form_.path, message));
  else if (stage_ == Stage::streaming)
    outbox_->break_off();
  stage_ = Stage::complete;
}

}  // namespace tyto::http
