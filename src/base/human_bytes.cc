#include "base/human_bytes.h"

#include <fmt/format.h>

#include <array>

namespace tyto {

std::string human_bytes(uint64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "kB", "MB", "GB", "TB"};
  constexpr double kStep = 1000, kRoundsUp = 999.95;  // which would be shown as 1000.0
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= (unit == 0 ? kStep : kRoundsUp) && unit + 1 < kUnits.size(); ++unit)
    value /= kStep;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

}  // namespace tyto
