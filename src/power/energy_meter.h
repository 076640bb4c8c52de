// Joules per rail over a window of time: counters are read at its ends, sampled rails also by a
// thread in between.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "power/power.h"

namespace tyto {

struct RailEnergy {
  PowerRail rail;
  std::optional<double> joules;  // empty: `reason` says why
  std::string reason;
  double seconds = 0;    // between this rail's first and last reading
  uint32_t samples = 0;  // readings, both ends included

  std::optional<double> watts() const;
};

struct EnergyWindow {
  double seconds = 0;
  std::vector<RailEnergy> rails;  // as power_rails() has them, unavailable ones with their reason

  bool measured() const;  // any rail has joules
};

// Adds up one rail's readings; the arithmetic of the meter, without clock or thread.
class RailIntegral {
 public:
  explicit RailIntegral(PowerRail rail) : rail_(std::move(rail)) {}

  // The first reading opens the window. A reading that failed makes the window's energy n/a.
  void add(double at_seconds, const RailReading& reading);
  double last_seconds() const { return last_seconds_; }

  // What was added up; the last reading opens the next window.
  RailEnergy close();

 private:
  PowerRail rail_;
  double first_seconds_ = 0;
  double last_seconds_ = 0;
  double last_value_ = 0;
  double joules_ = 0;
  uint32_t samples_ = 0;
  bool last_failed_ = false;
  std::string failure_;
};

struct MeterOptions {
  std::chrono::milliseconds interval{50};  // between samples of power
  // Between readings of a counter, so that it cannot start again from 0 twice unnoticed.
  std::chrono::milliseconds counter_interval{5000};
};

// start(), then any number of lap(), then stop(), from one thread. A sampler thread lives from
// start() to stop() where there is something to read.
class EnergyMeter {
 public:
  explicit EnergyMeter(std::vector<RailReader> readers, const MeterOptions& options = {});
  ~EnergyMeter();
  EnergyMeter(const EnergyMeter&) = delete;
  EnergyMeter& operator=(const EnergyMeter&) = delete;

  void start();        // opens a window; one that is open is forgotten
  EnergyWindow lap();  // closes the window and opens the next one with the same reading
  EnergyWindow stop();

  const std::vector<RailReader>& readers() const { return readers_; }

 private:
  double now() const;
  void read_all(bool due_only);  // with mutex_ held
  void sample_until_stopped(std::chrono::milliseconds interval);
  void join();

  const std::vector<RailReader> readers_;
  const MeterOptions options_;
  const std::chrono::steady_clock::time_point origin_ = std::chrono::steady_clock::now();

  std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  bool sampling_ = false;
  double window_start_ = 0;
  std::vector<RailIntegral> integrals_;  // [readers_]

  std::thread sampler_;
};

// A-B-A: a load between two idle windows, so that what the machine uses anyway can be taken off,
// and what the idle power did meanwhile is known.

struct Spread {
  double mean = 0;
  double deviation = 0;  // the sample's; 0 for a single value
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
  Spread net;                      // net_joules over the trials
  // How far `net` may be off: the largest of the trials' deviation, of what the idle power's own
  // movement is worth over a load's time, and of one update of the rail.
  double uncertainty = 0;

  bool above_idle() const { return net.mean > uncertainty; }
};

// `idle` has one window more than `load`; all windows have the same rails.
std::vector<RailPower> subtract_idle(std::span<const EnergyWindow> idle,
                                     std::span<const EnergyWindow> load);

}  // namespace tyto
