// HTTP as a download needs it: GET requests, several at a time, on the caller's thread. Redirects
// are answers like any other, so that the caller decides where the next request goes and what it
// carries.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tyto {

struct HttpRange {
  uint64_t begin = 0;
  uint64_t end = 0;  // behind the last one
};

struct HttpRequest {
  std::string url;
  std::string token;  // goes out as "Authorization: Bearer"; empty: none
  std::optional<HttpRange> range = {};
};

struct HttpAnswer {
  unsigned status = 0;                              // 0: none came
  std::map<std::string, std::string> headers = {};  // names in lower case
  std::string failure = {};    // why it ended before its end; empty: it did not
  bool can_pass = true;        // the failure: trying again may help
  bool is_unresolved = false;  // the failure: no address is known of the host

  std::string header(const std::string& name) const;  // empty: absent
  bool is_redirect() const { return status >= 300 && status < 400 && !header("location").empty(); }
};

// Gets the body of an answer as it comes. What it throws ends the request and is thrown by wait().
using HttpSink = std::function<void(const HttpAnswer& head, std::span<const std::byte> bytes)>;

class HttpClient {
 public:
  // A request ends that for `timeout` brought nothing: no connection, no header, no byte.
  HttpClient(std::string user_agent, std::chrono::seconds timeout);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  using Id = uint64_t;
  Id start(const HttpRequest& request, HttpSink sink);
  void cancel_all();
  // Moves bytes for `most` of time, or until requests have ended, and returns those.
  std::vector<std::pair<Id, HttpAnswer>> wait(std::chrono::milliseconds most);

 private:
  struct Request;
  struct Handles;
  std::string user_agent_;
  std::chrono::seconds timeout_;
  using Requests = std::map<Id, std::unique_ptr<Request>>;

  // Takes it out, and throws what its sink has thrown.
  std::pair<Id, HttpAnswer> end(Requests::iterator which);

  Id last_id_ = 0;
  Requests requests_;
  std::unique_ptr<Handles> handles_;
};

// "http" or "https", a host, and nothing before it: no name and password.
bool is_http_url(const std::string& url);
// The same scheme, host and port.
bool is_same_origin(const std::string& one, const std::string& other);
// Where a redirect or a link of the answer to `url` leads. An Error for what is not HTTP, and for
// the way from https to http.
std::string linked_url(const std::string& url, const std::string& location);
// A path or a part of one as URLs write it; slashes stay.
std::string escaped_path(std::string_view path);
// "Wed, 21 Oct 2015 07:28:00 GMT" in seconds since 1970.
std::optional<int64_t> http_date(const std::string& text);

// When a request that failed is worth another try, and how long to wait before it.

// The longest that a hub may ask to wait; what asks for more is an error that says so.
inline constexpr std::chrono::seconds kLongestWait(300);

// A connection that was cut or stalled, too many requests, or a fault of the server's.
bool is_worth_a_retry(const HttpAnswer& answer);

// "cannot connect", "500", "429 Too Many Requests": for messages.
std::string reason_of(const HttpAnswer& answer);

inline constexpr const char* kGoesOn =
    "what was fetched is kept; the same command goes on from there";

class Attempts {
 public:
  explicit Attempts(unsigned retries) : retries_(retries) {}

  void start_anew() { failures_ = 0; }  // bytes have come
  // Another failure: how long to wait now. Half a second, then twice as long each time, or as long
  // as Retry-After says, in seconds or as a date. An Error once there were more than `retries` in a
  // row, with what the user can do.
  std::chrono::milliseconds after(const HttpAnswer& answer, const std::string& place,
                                  const std::string& hint = kGoesOn);
  unsigned failures() const { return failures_; }
  unsigned retries() const { return retries_; }

 private:
  unsigned retries_;
  unsigned failures_ = 0;
};

}  // namespace tyto
