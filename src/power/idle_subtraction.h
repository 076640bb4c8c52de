// A-B-A: a load between two idle windows, so that what the machine uses anyway can be taken off,
// and what the idle power did meanwhile is known.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "power/energy_meter.h"

namespace tyto {

struct Spread {
  double mean = 0;
  double deviation = 0;  // of the sample; 0 for a single value
  double min = 0;
  double max = 0;
};
Spread spread_of(std::span<const double> values);

// One rail over all trials. Trial i is load[i] between idle[i] and idle[i + 1].
struct RailPower {
  PowerRail rail;
  std::string reason;  // not empty: nothing below counts
  Spread idle_watts;
  Spread load_watts;
  Spread load_joules;              // as measured
  std::vector<double> net_joules;  // per trial, without the mean idle power of its two neighbours
  Spread net;                      // of net_joules
  // How far `net` may be off: the largest of the trials' deviation, of what the idle power's own
  // movement is worth over a load's time, and of one update of the rail.
  double uncertainty = 0;

  bool above_idle() const { return net.mean > uncertainty; }
};

// `idle` has one window more than `load`; all windows have the same rails.
std::vector<RailPower> subtract_idle(std::span<const EnergyWindow> idle,
                                     std::span<const EnergyWindow> load);

}  // namespace tyto
