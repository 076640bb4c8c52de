// The answer to one request: what a handler says, written as HTTP into the connection's outbox.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "serve/http/answer_bytes.h"
#include "serve/http/exchange.h"
#include "serve/http/outbox.h"

namespace tyto::http {

class HttpReply final : public Reply {
 public:
  // Has a task run by a worker; nothing where those have ended.
  using RunOnWorker = std::function<void(std::function<void()> task)>;
  // The outbox is shared with the connection, which may be gone before the answer is made.
  HttpReply(std::shared_ptr<Outbox> outbox, AnswerForm form, ErrorBody error_body,
            RunOnWorker run_on_worker = {});
  ~HttpReply() override;
  HttpReply(const HttpReply&) = delete;
  HttpReply& operator=(const HttpReply&) = delete;

  void send(Response response) override;
  void begin(int status, std::string type, Headers headers) override;
  void write(std::string piece) override;
  void finish() override;
  void on_worker(std::function<void()> task) override;
  void on_gone(std::function<void()> gone) override;

  // There will be no more: a 500, or a stream that breaks off. Nothing, where the answer is whole.
  // A connection is closed without a word where there is no memory for one.
  void fail(std::string_view message) noexcept;

 private:
  enum class Stage { unanswered, streaming, complete };
  void send_whole(const Response& response);
  bool send_error(std::string_view message);

  // A handler that throws may have handed the reply to another thread before.
  std::mutex mutex_;
  const std::shared_ptr<Outbox> outbox_;
  const AnswerForm form_;
  const ErrorBody error_body_;
  const RunOnWorker run_on_worker_;
  Stage stage_ = Stage::unanswered;
};

}  // namespace tyto::http
