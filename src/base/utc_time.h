// The time of day as records keep it.
#pragma once

#include <string>

namespace tyto {

std::string utc_now();  // 2026-01-31T12:00:00Z

}  // namespace tyto
