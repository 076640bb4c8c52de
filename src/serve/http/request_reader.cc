#include "serve/http/request_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <utility>

#include "base/error.h"

namespace tyto::http {
namespace beast = boost::beast;

struct RequestReader::Parser : beast::http::request_parser<beast::http::string_body> {};

namespace {

constexpr std::string_view kEndOfHead = "\r\n\r\n";
constexpr size_t kLastChunk = 5;  // "0\r\n\r\n"

std::string text(beast::string_view view) {
  return {view.data(), view.size()};
}

Refusal refusal_of(const beast::error_code& failure, size_t most_header_bytes) {
  using beast::http::error;
  if (failure == error::body_limit) return {413, "the body is larger than this server takes"};
  if (failure == error::header_limit)
    return {431, fmt::format("the header is longer than {} bytes", most_header_bytes)};
  return {400, fmt::format("the request is malformed: {}", failure.message())};
}

bool is_end_of_line(char c) {
  return c == '\r' || c == '\n';
}

// Where two servers would disagree on where a body ends, one could be made to take a part of it for
// the next request. So there is one header that tells, in one form.
bool is_framed_in_one_way(const beast::http::request<beast::http::string_body>& message) {
  using beast::http::field;
  const size_t lengths = message.count(field::content_length);
  const size_t encodings = message.count(field::transfer_encoding);
  if (lengths + encodings > 1) return false;
  if (encodings == 1)
    return message.version() == 11 &&
           same_in_any_case(text(message[field::transfer_encoding]), "chunked");
  const auto length = message[field::content_length];
  return std::all_of(length.begin(), length.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

RequestReader::RequestReader(size_t most_header_bytes, size_t most_body_bytes)
    : most_header_bytes_(most_header_bytes), parser_(std::make_unique<Parser>()) {
  parser_->header_limit(static_cast<uint32_t>(std::min<size_t>(most_header_bytes, UINT32_MAX)));
  parser_->body_limit(most_body_bytes);
}

RequestReader::~RequestReader() = default;

size_t RequestReader::read(std::string_view bytes) {
  TYTO_ASSERT(!refusal_ && !is_complete());
  return has_head() ? read_body(bytes) : read_head(bytes);
}

// The parser gets a head in one piece: what it takes piece by piece it does not count together.
size_t RequestReader::read_head(std::string_view bytes) {
  // Some clients send an empty line behind a body.
  if (!bytes.empty() && is_end_of_line(bytes[0]) && searched_ == 0)
    return std::min(bytes.find_first_not_of("\r\n"), bytes.size());
  if (!bytes.empty() && (bytes[0] < 'A' || bytes[0] > 'z')) {
    refusal_ = {400, "the request is malformed: this is not HTTP"};  // TLS, most of the time
    return 0;
  }
  const size_t found = bytes.find(kEndOfHead, searched_ - std::min(searched_, kEndOfHead.size()));
  const size_t length = found == bytes.npos ? bytes.size() : found + kEndOfHead.size();
  searched_ = bytes.size();
  if (length > most_header_bytes_) {
    refusal_ = refusal_of(beast::http::error::header_limit, most_header_bytes_);
    return 0;
  }
  if (found == bytes.npos) return 0;
  beast::error_code error;
  const size_t taken = parser_->put(boost::asio::buffer(bytes.data(), length), error);
  if (error)
    refusal_ = refusal_of(error, most_header_bytes_);
  else if (!parser_->is_header_done() || taken != length)
    refusal_ = {400, "the request is malformed: its header ends early"};
  else if (!is_framed_in_one_way(parser_->get()))
    refusal_ = {400,
                "the request is malformed: it says in two ways, or none we know, how long it is"};
  parser_->eager(true);
  return taken;
}

size_t RequestReader::read_body(std::string_view bytes) {
  // Behind every part of a chunked body there is at least its last chunk; the parser counts on
  // seeing that one whole.
  if (parser_->chunked() && bytes.size() < kLastChunk) return 0;
  beast::error_code error;
  const size_t taken = parser_->put(boost::asio::buffer(bytes.data(), bytes.size()), error);
  if (error && error != beast::http::error::need_more)
    refusal_ = refusal_of(error, most_header_bytes_);
  // Unread is then a chunk's header or the trailer.
  else if (!is_complete() && bytes.size() - taken > most_header_bytes_)
    refusal_ = refusal_of(beast::http::error::header_limit, most_header_bytes_);
  return taken;
}

bool RequestReader::has_head() const {
  return parser_->is_header_done();
}

bool RequestReader::is_complete() const {
  return parser_->is_done();
}

RequestHead RequestReader::head() const {
  const auto& message = parser_->get();
  RequestHead head{.method = text(message.method_string()),
                   .target = text(message.target()),
                   .is_http_1_0 = message.version() == 10};
  for (const auto& field : message)
    head.headers.emplace_back(text(field.name_string()), text(field.value()));
  return head;
}

std::string RequestReader::take_body() {
  return std::move(parser_->get().body());
}

}  // namespace tyto::http
