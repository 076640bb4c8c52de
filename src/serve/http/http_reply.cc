#include "serve/http/http_reply.h"

#include <algorithm>
#include <ctime>
#include <iterator>
#include <utility>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "serve/http/request_reader.h"

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

namespace {

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

}  // namespace

bool same_in_any_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

std::string_view Request::header(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (same_in_any_case(key, name)) return value;
  return {};
}

namespace {

constexpr std::pair<int, std::string_view> kReasons[] = {
    {200, "OK"},
    {204, "No Content"},
    {304, "Not Modified"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {413, "Content Too Large"},
    {415, "Unsupported Media Type"},
    {417, "Expectation Failed"},
    {421, "Misdirected Request"},
    {422, "Unprocessable Content"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
};

std::string_view reason(int status) {
  const auto* row = std::find_if(std::begin(kReasons), std::end(kReasons),
                                 [&](const auto& entry) { return entry.first == status; });
  return row == std::end(kReasons) ? std::string_view("Status") : row->second;
}

bool has(const Headers& headers, std::string_view name) {
  return std::any_of(headers.begin(), headers.end(),
                     [&](const auto& header) { return same_in_any_case(header.first, name); });
}

// A value must not begin a line of its own.
void add_header(std::string& bytes, std::string_view name, std::string_view value) {
  bytes.append(name).append(": ");
  std::replace_copy_if(
      value.begin(), value.end(), std::back_inserter(bytes),
      [](unsigned char c) { return c < ' ' || c == 0x7f; }, ' ');
  bytes += "\r\n";
}

const Headers& security_headers() {
  static const Headers headers = {{"x-content-type-options", "nosniff"},
                                  {"referrer-policy", "no-referrer"},
                                  {"cache-control", "no-store"}};
  return headers;
}

std::string head_bytes(int status, const std::string& type, const Headers& headers,
                       const AnswerForm& form, bool keep_alive) {
  std::string bytes = fmt::format("HTTP/1.1 {} {}\r\n", status, reason(status));
  add_header(bytes, "date",
             fmt::format("{:%a, %d %b %Y %H:%M:%S} GMT", fmt::gmtime(std::time(nullptr))));
  if (!type.empty()) add_header(bytes, "content-type", type);
  if (!keep_alive) add_header(bytes, "connection", "close");
  for (const Headers* own : {&security_headers(), &form.cors})
    for (const auto& [name, value] : *own)
      if (!has(headers, name)) add_header(bytes, name, value);
  for (const auto& [name, value] : headers) add_header(bytes, name, value);
  return bytes;
}

}  // namespace

std::string whole_answer(const Response& response, const AnswerForm& form, bool keep_alive) {
  std::string bytes =
      head_bytes(response.status, response.type, response.headers, form, keep_alive);
  const bool may_have_body = response.status != 204 && response.status != 304;
  if (may_have_body) add_header(bytes, "content-length", std::to_string(response.body.size()));
  bytes += "\r\n";
  if (may_have_body && !form.is_head) bytes += response.body;
  return bytes;
}

std::string stream_head(int status, const std::string& type, const Headers& headers,
                        const AnswerForm& form, bool keep_alive) {
  std::string bytes = head_bytes(status, type, headers, form, keep_alive);
  if (!form.is_http_1_0) add_header(bytes, "transfer-encoding", "chunked");
  return bytes += "\r\n";
}

std::string stream_piece(std::string_view piece, const AnswerForm& form) {
  if (form.is_head || piece.empty()) return {};  // an empty chunk would be the end
  if (form.is_http_1_0) return std::string(piece);
  return fmt::format("{:x}\r\n{}\r\n", piece.size(), piece);
}

std::string_view stream_end(const AnswerForm& form) {
  return form.is_head || form.is_http_1_0 ? "" : "0\r\n\r\n";
}

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
