#include "hub/attempts.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/error.h"
#include "base/utc_time.h"

namespace tyto {
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
