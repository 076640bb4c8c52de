#include "base/utc_time.h"

#include <fmt/chrono.h>

#include <chrono>

namespace tyto {

std::string utc_now() {
  return fmt::format(
      "{:%Y-%m-%dT%H:%M:%SZ}",
      fmt::gmtime(std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now())));
}

}  // namespace tyto
