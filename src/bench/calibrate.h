// `tyto bench --calibrate`: how fast each device of this machine is, for --device auto.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/progress.h"
#include "bench/bench_run.h"
#include "report/tables.h"

namespace tyto {

struct CalibrationOrder {
  BenchSetup setup;                       // with one model; its device does not matter
  std::string file = {};                  // empty: the one in the user's folder
  std::vector<std::string> devices = {};  // none: all that are not virtual and can be used
  uint32_t rounds = 5;                    // in which each device has its turn
  Progress progress = {};
  std::function<void(const std::string&)> note = {};  // hears what is left out or replaced
};

struct CalibrationResult {
  Table table;
  std::filesystem::path file;
};

// Measures, and adds the figures to the file. What is in the file of other models of this machine
// stays; a named file of another machine is left alone, which is an Error.
CalibrationResult calibrate(const CalibrationOrder& order);

}  // namespace tyto
