#include "power/energy_meter.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"

namespace tyto {
namespace {

// Readings lag by up to one update, at both ends of a window.
constexpr double kUpdatesPerWindow = 10;

std::string whole_milliseconds(double seconds) {
  return fmt::format("{:.3g} ms", seconds * 1e3);
}

}  // namespace

std::optional<double> RailEnergy::watts() const {
  if (!joules || seconds <= 0) return std::nullopt;
  return *joules / seconds;
}

bool EnergyWindow::measured() const {
  return std::any_of(rails.begin(), rails.end(),
                     [](const RailEnergy& rail) { return rail.joules.has_value(); });
}

void RailIntegral::add(double at_seconds, const RailReading& reading) {
  last_failed_ = !reading.error.empty();
  if (last_failed_) {
    failure_ = reading.error;
    return;
  }
  if (samples_ == 0) {
    first_seconds_ = at_seconds;
  } else if (rail_.kind == RailKind::sampled_power) {
    joules_ += (at_seconds - last_seconds_) * (reading.value + last_value_) / 2;
  } else {
    const double counted = reading.value - last_value_;
    if (counted < 0 && rail_.range_joules <= 0) failure_ = "the counter went backwards";
    joules_ += counted < 0 ? counted + rail_.range_joules : counted;
  }
  ++samples_;
  last_seconds_ = at_seconds;
  last_value_ = reading.value;
}

RailEnergy RailIntegral::close() {
  RailEnergy energy;
  energy.rail = rail_;
  energy.samples = samples_;
  energy.seconds = last_seconds_ - first_seconds_;
  if (!failure_.empty())
    energy.reason = failure_;
  else if (samples_ < 2)
    energy.reason = "it was not read twice";
  else if (energy.seconds < kUpdatesPerWindow * rail_.update_seconds)
    energy.reason =
        fmt::format("{} is too short for a value that changes every {}",
                    whole_milliseconds(energy.seconds), whole_milliseconds(rail_.update_seconds));
  else if (rail_.kind == RailKind::energy_counter && joules_ == 0)
    energy.reason =
        fmt::format("the counter did not move in {}", whole_milliseconds(energy.seconds));
  else
    energy.joules = joules_;

  samples_ = last_failed_ ? 0 : std::min<uint32_t>(samples_, 1);
  first_seconds_ = last_seconds_;
  joules_ = 0;
  failure_ = last_failed_ ? "it could not be read when the window began" : "";
  return energy;
}

EnergyMeter::EnergyMeter(std::vector<RailReader> readers, const MeterOptions& options)
    : readers_(std::move(readers)), options_(options) {}

EnergyMeter::~EnergyMeter() {
  join();
}

double EnergyMeter::now() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - origin_).count();
}

void EnergyMeter::read_all(bool due_only) {
  const double counter_interval = std::chrono::duration<double>(options_.counter_interval).count();
  for (size_t i = 0; i < readers_.size(); ++i) {
    const RailReader& reader = readers_[i];
    if (!reader.unavailable.empty()) continue;
    const bool is_counter = reader.rail.kind == RailKind::energy_counter;
    if (due_only && is_counter && now() - integrals_[i].last_seconds() < counter_interval) continue;
    const RailReading reading = reader.read();
    integrals_[i].add(now(), reading);
  }
}

void EnergyMeter::start() {
  join();
  integrals_.clear();
  for (const RailReader& reader : readers_) integrals_.emplace_back(reader.rail);
  window_start_ = now();
  read_all(false);
  sampling_ = true;
  bool any = false, any_sampled = false;
  for (const RailReader& reader : readers_) {
    const bool readable = reader.unavailable.empty();
    any |= readable;
    any_sampled |= readable && reader.rail.kind == RailKind::sampled_power;
  }
  const auto interval = any_sampled ? options_.interval : options_.counter_interval;
  if (any) sampler_ = std::thread([this, interval] { sample_until_stopped(interval); });
}

EnergyWindow EnergyMeter::lap() {
  const std::lock_guard lock(mutex_);
  TYTO_ASSERT(sampling_);
  EnergyWindow window;
  const double end = now();
  window.seconds = end - window_start_;
  window_start_ = end;
  read_all(false);
  for (size_t i = 0; i < readers_.size(); ++i) {
    window.rails.push_back(integrals_[i].close());
    if (!readers_[i].unavailable.empty()) window.rails.back().reason = readers_[i].unavailable;
  }
  return window;
}

EnergyWindow EnergyMeter::stop() {
  EnergyWindow window = lap();
  join();
  return window;
}

void EnergyMeter::sample_until_stopped(std::chrono::milliseconds interval) {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, interval, [this] { return !sampling_; })) read_all(true);
}

void EnergyMeter::join() {
  {
    const std::lock_guard lock(mutex_);
    sampling_ = false;
  }
  wake_.notify_all();
  if (sampler_.joinable()) sampler_.join();
}

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
