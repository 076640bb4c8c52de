// What a load uses above idle, measured by putting it between idle windows.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/progress.h"
#include "power/energy_meter.h"

namespace tyto {

// Something to measure; `run` gives back the tokens it made, 0 when it makes none.
struct PowerLoad {
  std::string name;
  std::function<uint64_t()> run;
  std::string executed_on = {};
};

// Another program, run to its end; what it writes to stdout goes to our stderr, so that ours stays
// what we print. Running it throws an Error when it cannot be started, fails, or is not done in
// time (it is then killed).
PowerLoad program_load(const std::vector<std::string>& command, std::chrono::seconds timeout);

struct PowerWindows {
  double idle_seconds = 3;
  double settle_seconds = 1;  // before each idle window: sensors average, clocks come down slowly
  uint32_t repetitions = 3;
};

struct MeasuredLoad {
  PowerLoad load;
  double tokens = 0;  // mean per trial
  std::vector<EnergyWindow> windows;
  std::vector<RailPower> rails;
};

MeasuredLoad measure_load(const PowerLoad& load, EnergyMeter& meter, const PowerWindows& windows,
                          const Progress& progress = {});

}  // namespace tyto
