// The answer to one request: what a handler says, written as HTTP into the connection's outbox.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tyto::http {

// Bytes of one answer on their way from whichever thread makes them to the connection, which takes
// them on the I/O thread.

class Outbox {
 public:
  // `wake` tells the connection to take what is here; once for all that comes until it does.
  Outbox(size_t most_unsent, bool keep_alive, std::function<void()> wake);

  // Called by the answer, from any thread.
  enum class Kind { part, last };
  void put(std::string_view bytes, Kind kind);
  void break_off();  // what was put is not the whole and never will be
  void on_gone(std::function<void()> gone);

  // Called by the connection.
  struct State {
    bool is_complete = false;
    bool is_broken = false;  // broken off, or more than `most_unsent` was not taken
  };
  State take(std::string& into);  // replaces what `into` held
  State state() const;
  void client_gone();  // drops everything, from now on, too, and forgets `wake`
  void answered();     // everything was sent: forgets `wake`
  void close_after();

  // Whether another request may follow on the connection.
  bool keep_alive() const;

 private:
  void break_now();

  mutable std::mutex mutex_;
  const size_t most_unsent_;
  bool keep_alive_;
  std::function<void()> wake_;
  std::function<void()> gone_;
  std::string bytes_;
  State state_;
  bool is_woken_ = false;
  bool is_gone_ = false;
};

// One HTTP request and its answer, free of sockets: what handlers see.

using Headers = std::vector<std::pair<std::string, std::string>>;

bool same_in_any_case(std::string_view a, std::string_view b);

struct Request {
  std::string method;    // "GET"; of a HEAD, too, whose answer is then sent without its body
  std::string path;      // percent-decoded UTF-8, without the query
  std::string query;     // as it came, without the question mark
  Headers headers = {};  // without those that carry keys
  std::string body = {};

  std::string_view header(std::string_view name) const;  // in any case; empty: there is none
};

struct Response {
  int status = 200;
  std::string type = "application/json";
  std::string body = {};
  Headers headers = {};  // go before the server's own of the same name
};

// Makes the body of an answer that no handler gave. The path is empty where none was read.
using ErrorBody = std::string (*)(int status, std::string_view path, const std::string& message);

// Where an answer goes. Any thread may use it, one at a time; it outlives the connection. After the
// client has gone everything is accepted and dropped.
class Reply {
 public:
  virtual ~Reply() = default;

  virtual void send(Response response) = 0;  // the whole answer

  // In pieces, as they come: begin, write as often as needed, finish.
  virtual void begin(int status, std::string type, Headers headers) = 0;
  virtual void write(std::string piece) = 0;
  virtual void finish() = 0;

  // Runs a task on a worker, some time later, for threads that must not wait for it. One that
  // throws is an exception of the handler.
  virtual void on_worker(std::function<void()> task) { task(); }

  // Called once if the client goes away before the answer is complete: from the server's I/O
  // thread, for which every connection waits, or at once where it has gone already. It must not
  // throw.
  virtual void on_gone(std::function<void()> gone) = 0;
};

// Called from a worker thread, or for a quick path from the I/O thread. It answers now, or keeps
// the reply and answers later; a reply that is dropped without an answer becomes a 500, and so does
// an exception; a stream that is dropped before its end is broken off, so that no client takes it
// for whole.
using Handler = std::function<void(Request, std::shared_ptr<Reply>)>;

// Answers as HTTP/1.1 writes them.

// What of the request decides how its answer is written.
struct AnswerForm {
  bool is_head = false;      // without the body
  bool is_http_1_0 = false;  // knows no chunks: a stream ends with the connection
  Headers cors = {};
  std::string path = {};  // errors are worded for it
};

std::string whole_answer(const Response& response, const AnswerForm& form, bool keep_alive);

// A stream's beginning; then pieces, and its end.
std::string stream_head(int status, const std::string& type, const Headers& headers,
                        const AnswerForm& form, bool keep_alive);
std::string stream_piece(std::string_view piece, const AnswerForm& form);
std::string_view stream_end(const AnswerForm& form);

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
