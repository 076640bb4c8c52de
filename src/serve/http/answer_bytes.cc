#include "serve/http/answer_bytes.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <iterator>
#include <utility>

namespace tyto::http {
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

}  // namespace tyto::http
