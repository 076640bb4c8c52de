#include "power/idle_subtraction.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace tyto {
namespace {

// The first reason among the windows; empty when the rail was measured in all of them.
std::string reason_of(std::span<const EnergyWindow> windows, size_t rail) {
  for (const EnergyWindow& window : windows)
    if (!window.rails[rail].joules) return window.rails[rail].reason;
  return "";
}

std::vector<double> watts_of(std::span<const EnergyWindow> windows, size_t rail) {
  std::vector<double> watts;
  for (const EnergyWindow& window : windows) watts.push_back(*window.rails[rail].watts());
  return watts;
}

RailPower rail_power(std::span<const EnergyWindow> idle, std::span<const EnergyWindow> load,
                     size_t rail) {
  RailPower power;
  power.rail = load[0].rails[rail].rail;
  power.reason = reason_of(idle, rail);
  if (power.reason.empty()) power.reason = reason_of(load, rail);
  if (!power.reason.empty()) return power;

  const std::vector<double> idle_watts = watts_of(idle, rail);
  power.idle_watts = spread_of(idle_watts);
  power.load_watts = spread_of(watts_of(load, rail));
  std::vector<double> joules;
  double moved = 0;
  for (size_t i = 0; i < load.size(); ++i) {
    const RailEnergy& energy = load[i].rails[rail];
    const double before = idle_watts[i], after = idle_watts[i + 1];
    joules.push_back(*energy.joules);
    power.net_joules.push_back(*energy.joules - (before + after) / 2 * energy.seconds);
    moved = std::max(moved, std::abs(before - after) / 2 * energy.seconds);
  }
  power.load_joules = spread_of(joules);
  power.net = spread_of(power.net_joules);
  power.uncertainty =
      std::max({power.net.deviation, moved, power.rail.update_seconds * power.load_watts.mean});
  return power;
}

}  // namespace

Spread spread_of(std::span<const double> values) {
  Spread spread;
  if (values.empty()) return spread;
  const auto count = static_cast<double>(values.size());
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  spread.min = *least;
  spread.max = *most;
  for (double value : values) spread.mean += value / count;
  if (values.size() < 2) return spread;
  for (double value : values)
    spread.deviation += (value - spread.mean) * (value - spread.mean) / (count - 1);
  spread.deviation = std::sqrt(spread.deviation);
  return spread;
}

std::vector<RailPower> subtract_idle(std::span<const EnergyWindow> idle,
                                     std::span<const EnergyWindow> load) {
  TYTO_ASSERT(!load.empty() && idle.size() == load.size() + 1);
  std::vector<RailPower> rails;
  for (size_t rail = 0; rail < load[0].rails.size(); ++rail)
    rails.push_back(rail_power(idle, load, rail));
  return rails;
}

}  // namespace tyto
