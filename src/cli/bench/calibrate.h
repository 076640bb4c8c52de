// tyto bench --calibrate: how fast each device of this machine is, for --device auto.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/flags.h"

namespace tyto {

struct CalibrationOrder {
  EngineFlags flags;                      // with one model; its device does not matter
  std::vector<std::string> devices = {};  // none: all that are not virtual and can be used
  uint32_t rounds = 5;                    // in which each device has its turn
};

// Measures, prints the figures and adds them to the file. What is in the file of other models of
// this machine stays; a named file of another machine is left alone, which is an Error.
void calibrate(const CalibrationOrder& order);

}  // namespace tyto
