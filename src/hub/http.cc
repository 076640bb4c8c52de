#include "hub/http.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <exception>
#include <new>
#include <optional>

#include <curl/curl.h>
#include <fmt/format.h>

#include "base/error.h"
#include "base/redaction.h"
#include "base/spelling.h"

namespace tyto {
namespace {

constexpr size_t kMostHeaderBytes = 64 << 10;

struct EasyDeleter {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
};
struct MultiDeleter {
  void operator()(CURLM* handle) const { curl_multi_cleanup(handle); }
};
struct ListDeleter {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
struct UrlDeleter {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
using Url = std::unique_ptr<CURLU, UrlDeleter>;

Url parsed(const std::string& text) {
  Url url(curl_url());
  if (url == nullptr) throw std::bad_alloc();
  return curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0) == CURLUE_OK ? std::move(url)
                                                                              : nullptr;
}

std::string part(const Url& url, CURLUPart which, unsigned flags = 0) {
  char* text = nullptr;
  if (url == nullptr || curl_url_get(url.get(), which, &text, flags) != CURLUE_OK) return "";
  std::string result(text);
  curl_free(text);
  return result;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::string origin(const std::string& text) {
  const Url url = parsed(text);
  return fmt::format("{}://{}:{}", part(url, CURLUPART_SCHEME), lower(part(url, CURLUPART_HOST)),
                     part(url, CURLUPART_PORT, CURLU_DEFAULT_PORT));
}

// Whether a failure can pass. The next try has the same wrong certificate, proxy or address.
bool can_pass(CURLcode code) {
  switch (code) {
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_COULDNT_RESOLVE_PROXY:
      return false;
    default:
      return true;
  }
}

}  // namespace

std::string HttpAnswer::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

struct HttpClient::Handles {
  std::unique_ptr<CURLM, MultiDeleter> multi{curl_multi_init()};
};

struct HttpClient::Request {
  std::unique_ptr<CURL, EasyDeleter> easy{curl_easy_init()};
  std::unique_ptr<curl_slist, ListDeleter> headers;
  HttpSink sink;
  std::string token;
  HttpAnswer answer;
  size_t header_bytes = 0;
  std::chrono::steady_clock::time_point last_byte = std::chrono::steady_clock::now();
  std::exception_ptr thrown;
  char failure[CURL_ERROR_SIZE] = {};

  void add_header(const std::string& line) {
    curl_slist* longer = curl_slist_append(headers.get(), line.c_str());
    if (longer == nullptr) throw std::bad_alloc();
    (void)headers.release();
    headers.reset(longer);
  }

  template <class Value>
  void set(CURLoption option, Value value) {
    TYTO_ASSERT(curl_easy_setopt(easy.get(), option, value) == CURLE_OK);
  }

  void take_header(std::string_view line) {
    while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back())) != 0)
      line.remove_suffix(1);
    if (line.starts_with("HTTP/")) answer.headers.clear();  // another answer follows a 1xx
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return;
    std::string_view value = line.substr(colon + 1);
    value.remove_prefix(std::min(value.find_first_not_of(" \t"), value.size()));
    std::string name = lower(std::string(line.substr(0, colon)));
    std::string text(value);
    if (name == "x-error-message") hide_token(text);
    answer.headers[std::move(name)] = std::move(text);
  }

  // A hub may say which token it does not like.
  void hide_token(std::string& text) const {
    for (size_t at = token.empty() ? std::string::npos : text.find(token); at != std::string::npos;
         at = text.find(token, at + kHidden.size()))
      text.replace(at, token.size(), kHidden);
  }

  void read_status() {
    long status = 0;
    curl_easy_getinfo(easy.get(), CURLINFO_RESPONSE_CODE, &status);
    answer.status = static_cast<unsigned>(status);
  }

  void fail(const std::string& why, bool may_pass) {
    answer.failure = redacted_quote(why);  // libcurl quotes the proxy's, with its password
    answer.can_pass = may_pass;
  }

  // libcurl's callbacks; what they return tells it to go on, or to end the transfer.
  static size_t on_header(char* data, size_t size, size_t count, void* self) {
    auto& request = *static_cast<Request*>(self);
    request.last_byte = std::chrono::steady_clock::now();
    request.header_bytes += size * count;
    if (request.header_bytes > kMostHeaderBytes) return 0;
    request.take_header({data, size * count});
    return size * count;
  }
  static size_t on_body(char* data, size_t size, size_t count, void* self) {
    auto& request = *static_cast<Request*>(self);
    request.last_byte = std::chrono::steady_clock::now();
    try {
      request.read_status();
      request.sink(request.answer, std::as_bytes(std::span(data, size * count)));
      return size * count;
    } catch (...) {
      request.thrown = std::current_exception();
      return 0;
    }
  }
};

HttpClient::HttpClient(std::string user_agent, std::chrono::seconds timeout)
    : user_agent_(std::move(user_agent)), timeout_(timeout) {
  static const CURLcode started = curl_global_init(CURL_GLOBAL_DEFAULT);
  TYTO_ASSERT(started == CURLE_OK);
  handles_ = std::make_unique<Handles>();
  if (handles_->multi == nullptr) throw std::bad_alloc();
}

HttpClient::~HttpClient() {
  cancel_all();
}

void HttpClient::cancel_all() {
  for (const auto& [id, request] : requests_)
    curl_multi_remove_handle(handles_->multi.get(), request->easy.get());
  requests_.clear();
}

HttpClient::Id HttpClient::start(const HttpRequest& asked, HttpSink sink) {
  auto request = std::make_unique<Request>();
  if (request->easy == nullptr) throw std::bad_alloc();
  request->sink = std::move(sink);
  request->token = asked.token;
  request->add_header("Accept-Encoding: identity");  // ranges and sizes are of the file's bytes
  if (!asked.token.empty()) request->add_header("Authorization: Bearer " + asked.token);
  if (asked.range)
    request->add_header(
        fmt::format("Range: bytes={}-{}", asked.range->begin, asked.range->end - 1));
  request->set(CURLOPT_URL, asked.url.c_str());
  request->set(CURLOPT_HTTPHEADER, request->headers.get());
  request->set(CURLOPT_PROTOCOLS_STR, "http,https");
  // HTTP/2 would send all ranges through one connection, and the point is to have several.
  request->set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  request->set(CURLOPT_USERAGENT, user_agent_.c_str());
  request->set(CURLOPT_NOSIGNAL, 1L);
  request->set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  request->set(CURLOPT_ERRORBUFFER, static_cast<char*>(request->failure));
  request->set(CURLOPT_HEADERFUNCTION, Request::on_header);
  request->set(CURLOPT_HEADERDATA, request.get());
  request->set(CURLOPT_WRITEFUNCTION, Request::on_body);
  request->set(CURLOPT_WRITEDATA, request.get());
  TYTO_ASSERT(curl_multi_add_handle(handles_->multi.get(), request->easy.get()) == CURLM_OK);
  requests_.emplace(++last_id_, std::move(request));
  return last_id_;
}

std::vector<std::pair<HttpClient::Id, HttpAnswer>> HttpClient::wait(
    std::chrono::milliseconds most) {
  CURLM* const multi = handles_->multi.get();
  int running = 0;
  curl_multi_perform(multi, &running);
  if (running == static_cast<int>(requests_.size())) {  // nothing has ended yet
    curl_multi_poll(multi, nullptr, 0, static_cast<int>(most.count()), nullptr);
    curl_multi_perform(multi, &running);
  }
  std::vector<std::pair<Id, HttpAnswer>> ended;
  int left = 0;
  while (const CURLMsg* message = curl_multi_info_read(multi, &left)) {
    const auto found = std::find_if(requests_.begin(), requests_.end(), [&](const auto& each) {
      return each.second->easy.get() == message->easy_handle;
    });
    Request& request = *found->second;
    if (const CURLcode code = message->data.result; code != CURLE_OK) {
      request.fail(request.failure[0] != '\0' ? request.failure : curl_easy_strerror(code),
                   can_pass(code));
      request.answer.is_unresolved = code == CURLE_COULDNT_RESOLVE_HOST;
    }
    ended.push_back(end(found));
  }
  // libcurl would look at the average of some seconds.
  const auto now = std::chrono::steady_clock::now();
  for (auto each = requests_.begin(); each != requests_.end();) {
    const auto stalled = each++;
    if (now - stalled->second->last_byte <= timeout_) continue;
    stalled->second->fail(fmt::format("nothing came for {} s", timeout_.count()), true);
    ended.push_back(end(stalled));
  }
  return ended;
}

std::pair<HttpClient::Id, HttpAnswer> HttpClient::end(Requests::iterator which) {
  const Id id = which->first;
  const std::unique_ptr<Request> request = std::move(which->second);
  requests_.erase(which);
  curl_multi_remove_handle(handles_->multi.get(), request->easy.get());
  if (request->thrown) std::rethrow_exception(request->thrown);
  request->read_status();
  return {id, std::move(request->answer)};
}

bool is_http_url(const std::string& url) {
  const Url one = parsed(url);
  const std::string scheme = part(one, CURLUPART_SCHEME);
  return (scheme == "http" || scheme == "https") && !part(one, CURLUPART_HOST).empty() &&
         part(one, CURLUPART_USER).empty() && part(one, CURLUPART_PASSWORD).empty();
}

bool is_same_origin(const std::string& one, const std::string& other) {
  return is_http_url(one) && is_http_url(other) && origin(one) == origin(other);
}

std::string linked_url(const std::string& url, const std::string& location) {
  const Url target = parsed(url);
  if (target == nullptr ||
      curl_url_set(target.get(), CURLUPART_URL, location.c_str(), 0) != CURLUE_OK)
    fail_input(url, "leads to something that is not an address");
  const std::string result = part(target, CURLUPART_URL);
  if (!is_http_url(result)) fail_input(url, "leads to {}, which is not HTTP", result);
  if (url.starts_with("https:") && !result.starts_with("https:"))
    fail_input(url, "leads from https to {}, which others can read and change", result);
  return result;
}

std::string escaped_path(std::string_view path) {
  std::string result;
  for (const char c : path) {
    const bool is_plain = std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                          std::string_view("-._~/").find(c) != std::string_view::npos;
    result += is_plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return result;
}

std::optional<int64_t> http_date(const std::string& text) {
  const time_t time = curl_getdate(text.c_str(), nullptr);
  return time < 0 ? std::nullopt : std::optional<int64_t>(time);
}

namespace {

std::optional<std::chrono::seconds> retry_after(const HttpAnswer& answer) {
  const std::string text = answer.header("retry-after");
  if (text.empty()) return std::nullopt;
  int64_t seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size()) {
    const auto date = http_date(text);
    if (!date) return std::nullopt;
    seconds = *date - seconds_since_1970();
  }
  return std::chrono::seconds(std::max<int64_t>(seconds, 0));
}

}  // namespace

bool is_worth_a_retry(const HttpAnswer& answer) {
  if (answer.status >= 400)
    return answer.status == 408 || answer.status == 429 || answer.status >= 500;
  return !answer.failure.empty() && answer.can_pass;
}

std::string reason_of(const HttpAnswer& answer) {
  if (!answer.failure.empty()) return answer.failure;
  const std::string message = answer.header("x-error-message");
  return fmt::format("the answer was {}{}{}", answer.status, message.empty() ? "" : ": ", message);
}

std::chrono::milliseconds Attempts::after(const HttpAnswer& answer, const std::string& place,
                                          const std::string& hint) {
  const auto asked = retry_after(answer);
  if (asked && *asked > kLongestWait)
    throw Error(ErrorCode::input, place,
                fmt::format("{}; it asks to wait {} s, and Tyto waits {} at most",
                            reason_of(answer), asked->count(), kLongestWait.count()),
                hint);
  if (failures_ == retries_)
    throw Error(ErrorCode::input, place,
                failures_ == 0
                    ? reason_of(answer)
                    : fmt::format("{}, after {} tries", reason_of(answer), failures_ + 1),
                hint);
  ++failures_;
  const std::chrono::milliseconds doubled(500LL << std::min(failures_ - 1, 6U));
  return asked ? std::chrono::milliseconds(*asked) : doubled;
}

}  // namespace tyto
