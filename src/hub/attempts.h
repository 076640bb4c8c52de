// When a request that failed is worth another try, and how long to wait before it.
#pragma once

#include <chrono>
#include <string>

#include "hub/http.h"

namespace tyto {

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
