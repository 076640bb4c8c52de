// The calibration that this machine has, or why it has none, and `tyto bench --calibrate`, which
// measures how fast each device of this machine is, for --device auto.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/flags.h"
#include "plan/calibration.h"

namespace tyto {

CalibratedMachine this_machine();

// What was asked of a device and decides its speed, as flags; empty: nothing.
std::string settings_text(const EngineFlags& flags);

struct CalibrationHere {
  std::filesystem::path path;
  std::optional<Calibration> calibration = {};  // this machine's, as it is now
  std::string why_ignored =
      {};  // a sentence about a file that is there and of no use; may be empty
};
// `named` is what --calibration says; empty: the user's own. A named file that cannot be read is an
// Error, the user's own is ignored then.
CalibrationHere calibration_here(const std::string& named = "");

// "llama 1.24B bf16 on 2026-11-16: cpu, vulkan": what was measured and with what.
std::string summary(const Calibration& calibration);
std::string calibration_text();  // a sentence about what --device auto goes by here

struct CalibrationOrder {
  EngineFlags flags;                      // with one model; its device does not matter
  std::vector<std::string> devices = {};  // none: all that are not virtual and can be used
  uint32_t rounds = 5;                    // in which each device has its turn
};

// Measures, prints the figures and adds them to the file. What is in the file of other models of
// this machine stays; a named file of another machine is left alone, which is an Error.
void calibrate(const CalibrationOrder& order);

}  // namespace tyto
