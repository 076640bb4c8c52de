// What is measured of this machine for others to reckon with: `tyto bench --calibrate`, how fast
// each device is, for --device auto, and the processor's rows of `tyto plan`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/progress.h"
#include "bench/bench_run.h"
#include "plan/what_if.h"
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

// The processor's rows of a plan, measured on this machine in a few seconds.

// One row of a model that has weights, as its file has them. Of a shape, rows of the types that
// most people download. The setup names the model;
// `announce` is called before something is measured.
std::vector<PlanRow> cpu_rows(const PlanRequest& request, const BenchSetup& setup,
                              const Progress& progress, const std::function<void()>& announce);

}  // namespace tyto
