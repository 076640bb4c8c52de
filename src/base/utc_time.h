// The time of day as records keep it.
#pragma once

#include <cstdint>
#include <string>

namespace tyto {

std::string utc_now();                             // 2026-01-31T12:00:00Z
std::string utc_time(int64_t seconds_since_1970);  // of then
int64_t seconds_since_1970();                      // now

}  // namespace tyto
