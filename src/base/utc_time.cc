#include "base/utc_time.h"

#include <fmt/chrono.h>

#include <chrono>

namespace tyto {

std::string utc_now() {
  return utc_time(seconds_since_1970());
}

std::string utc_time(int64_t seconds_since_1970) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}",
                     fmt::gmtime(static_cast<std::time_t>(seconds_since_1970)));
}

int64_t seconds_since_1970() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace tyto
