#include "serve/http/request_reader.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <sodium.h>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "base/error.h"
#include "base/utf8.h"
#include "evidence/seal.h"

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

namespace {

constexpr std::string_view kLoopbackNames[] = {"localhost", "127.0.0.1", "[::1]"};
constexpr std::string_view kKeyHeaders[] = {"authorization", "x-api-key", "proxy-authorization"};

// Thrown and caught in this file alone.
struct Refused {
  int status;
  std::string message;
};

bool contains(const auto& list, std::string_view text) {
  return std::any_of(std::begin(list), std::end(list),
                     [&](std::string_view item) { return same_in_any_case(item, text); });
}

size_t count(const Headers& headers, std::string_view name) {
  return static_cast<size_t>(std::count_if(headers.begin(), headers.end(), [&](const auto& header) {
    return same_in_any_case(header.first, name);
  }));
}

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") + 1 - first);
}

bool lists(const Headers& headers, std::string_view name, std::string_view token) {
  for (const auto& [key, value] : headers) {
    if (!same_in_any_case(key, name)) continue;
    for (std::string_view rest = value; !rest.empty();) {
      const size_t comma = std::min(rest.find(','), rest.size());
      if (same_in_any_case(trimmed(rest.substr(0, comma)), token)) return true;
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
  }
  return false;
}

std::optional<unsigned char> hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return {};
}

std::string percent_decoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    const auto high = i + 2 < text.size() ? hex_digit(text[i + 1]) : std::nullopt;
    const auto low = i + 2 < text.size() ? hex_digit(text[i + 2]) : std::nullopt;
    if (!high || !low) throw Refused{400, "the path has a percent sign without two digits"};
    decoded += static_cast<char>(*high * 16 + *low);
    i += 2;
  }
  if (decoded.find('\0') != decoded.npos || valid_utf8_prefix(decoded) != decoded.size())
    throw Refused{400, "the path is not UTF-8 text"};
  return decoded;
}

struct Target {
  std::optional<std::string> host;  // in its absolute form, as proxies get it
  std::string path;
  std::string query;
};

// Takes the scheme and the host off the target; none: it has none.
std::optional<std::string_view> take_host(std::string_view& target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!same_in_any_case(target.substr(0, scheme.size()), scheme)) continue;
    target.remove_prefix(scheme.size());
    const std::string_view host = target.substr(0, target.find_first_of("/?"));
    target.remove_prefix(host.size());
    return host;
  }
  return std::nullopt;
}

Target split_target(std::string_view target) {
  Target parts;
  if (const auto host = take_host(target)) parts.host = std::string(*host);
  const size_t question = std::min(target.find('?'), target.size());
  const std::string_view path = target.substr(0, question);
  if (!path.starts_with('/') && !(parts.host && path.empty()))
    throw Refused{400, "the request's target is not a path"};
  parts.path = path.empty() ? "/" : percent_decoded(path);
  if (question < target.size()) parts.query = std::string(target.substr(question + 1));
  return parts;
}

std::string_view without_port(std::string_view host) {
  const size_t colon = host.rfind(':');
  if (colon == host.npos || host.find(']', colon) != host.npos) return host;
  return host.substr(0, colon);
}

bool is_address(std::string_view name) {
  in6_addr ignored;
  if (inet_pton(AF_INET, std::string(name).c_str(), &ignored) == 1) return true;
  return name.starts_with('[') && name.ends_with(']') &&
         inet_pton(AF_INET6, std::string(name.substr(1, name.size() - 2)).c_str(), &ignored) == 1;
}

bool takes_host(const Rules& rules, std::string_view host) {
  const std::string_view name = without_port(host);
  if (contains(kLoopbackNames, name) || contains(rules.hosts, name) || contains(rules.hosts, host))
    return true;
  if (rules.is_wildcard && is_address(name)) return true;
  return !rules.are_hosts_limited &&
         (rules.is_unix || (rules.is_wildcard && !rules.key_digests.empty()));
}

void check_host(const Rules& rules, const RequestHead& head, std::optional<std::string>& host) {
  const size_t hosts = count(head.headers, "host");
  if (hosts > 1 || (hosts == 0 && !head.is_http_1_0))
    throw Refused{400, "the request needs one Host header"};
  // A target with a host of its own goes before the header (RFC 9112, 3.2.2).
  if (!host && hosts == 1)
    for (const auto& [name, value] : head.headers)
      if (same_in_any_case(name, "host")) host = value;
  if (host && !takes_host(rules, *host))
    throw Refused{421, "this server does not go by that name; its allowed hosts are a setting"};
}

bool is_own_origin(std::string_view origin, std::string_view host) {
  for (const std::string_view scheme : {"http://", "https://"})
    if (origin.starts_with(scheme))
      return !host.empty() && same_in_any_case(origin.substr(scheme.size()), host);
  return false;
}

// The answer's CORS headers; none for our own page, and for who sends no Origin.
Headers check_origin(const Rules& rules, const Request& request, std::string_view host) {
  if (count(request.headers, "origin") == 0) return {};
  const std::string_view origin = request.header("origin");
  if (contains(rules.allowed_origins, origin) || contains(rules.allowed_origins, "*"))
    return {{"access-control-allow-origin", std::string(origin)}, {"vary", "origin"}};
  if (count(request.headers, "origin") > 1 || !is_own_origin(origin, host))
    throw Refused{403,
                  "pages of that origin may not use this server; allowed origins are a setting"};
  return {};
}

Response preflight_response(const Request& request, Headers cors) {
  cors.emplace_back("access-control-allow-methods", "GET, HEAD, POST, OPTIONS");
  cors.emplace_back("access-control-allow-headers",
                    std::string(request.header("access-control-request-headers")));
  cors.emplace_back("access-control-max-age", "600");
  return {.status = 204, .type = {}, .headers = std::move(cors)};
}

// Takes as long for a wrong key as for a right one.
bool has_key(const Rules& rules, const Request& request) {
  constexpr std::string_view kBearer = "bearer ";
  std::string_view key = request.header("x-api-key");
  const std::string_view authorization = request.header("authorization");
  if (same_in_any_case(authorization.substr(0, kBearer.size()), kBearer))
    key = trimmed(authorization.substr(kBearer.size()));
  const std::string given = digest(key);
  bool is_one = false;
  for (const std::string& known : rules.key_digests)
    is_one |= sodium_memcmp(known.data(), given.data(), kDigestDigits) == 0;
  return is_one;
}

bool needs_key(const Rules& rules, const Request& request) {
  return !rules.key_digests.empty() && std::find(rules.open_paths.begin(), rules.open_paths.end(),
                                                 request.path) == rules.open_paths.end();
}

// Fills `cors` on the way, which a refusal has, too: a page may read why it was refused.
std::variant<Admission, Response> try_admit(RequestHead head, const Rules& rules, Headers& cors) {
  Target target = split_target(head.target);
  check_host(rules, head, target.host);
  Request request{.method = head.method == "HEAD" ? "GET" : std::move(head.method),
                  .path = std::move(target.path),
                  .query = std::move(target.query),
                  .headers = std::move(head.headers)};
  cors = check_origin(rules, request, target.host.value_or(""));
  if (request.method == "OPTIONS" && !cors.empty() &&
      !request.header("access-control-request-method").empty())
    return preflight_response(request, cors);
  if (needs_key(rules, request) && !has_key(rules, request))
    throw Refused{401, "this server needs an API key: Authorization: Bearer KEY"};
  const std::string_view expected = request.header("expect");
  if (!expected.empty() && !same_in_any_case(expected, "100-continue"))
    throw Refused{417, "the request expects what this server does not know"};

  Admission admission{
      .keep_alive = !head.is_http_1_0 && !lists(request.headers, "connection", "close"),
      .expects_continue = !head.is_http_1_0 && !expected.empty(),
      .cors = cors,
  };
  std::erase_if(request.headers,
                [](const auto& header) { return contains(kKeyHeaders, header.first); });
  admission.request = std::move(request);
  return admission;
}

}  // namespace

Rules make_rules(const ServerOptions& options, const std::string& bound_host,
                 ErrorBody error_body) {
  Rules rules{.hosts = options.allowed_hosts,
              .allowed_origins = options.allowed_origins,
              .open_paths = options.open_paths,
              .key_digests = digests_of(options.api_keys),
              .are_hosts_limited = !options.allowed_hosts.empty(),
              .is_wildcard = bound_host == "0.0.0.0" || bound_host == "::",
              .is_unix = bound_host.starts_with("unix:"),
              .error_body = error_body};
  for (const std::string& host : {options.host, bound_host})
    rules.hosts.push_back(host.find(':') == host.npos ? host : "[" + host + "]");
  return rules;
}

std::vector<std::string> digests_of(const std::vector<std::string>& keys) {
  std::vector<std::string> digests;
  for (const std::string& key : keys) digests.push_back(digest(key));
  return digests;
}

Response error_response(ErrorBody error_body, int status, std::string_view path,
                        const std::string& message, Headers headers) {
  if (status == 401) headers.emplace_back("www-authenticate", "Bearer");
  return {
      .status = status, .body = error_body(status, path, message), .headers = std::move(headers)};
}

std::string_view path_in(std::string_view target) {
  take_host(target);
  return target.substr(0, target.find('?'));
}

std::variant<Admission, Response> admit(RequestHead head, const Rules& rules) {
  Headers cors;
  const std::string target = head.target;
  try {
    return try_admit(std::move(head), rules, cors);
  } catch (const Refused& refused) {
    return error_response(rules.error_body, refused.status, path_in(target), refused.message,
                          std::move(cors));
  }
}

}  // namespace tyto::http
