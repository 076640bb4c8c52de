// All that `tyto doctor` asks of a machine, and the answers as JSON.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "doctor/checks.h"

namespace tyto {

struct DoctorOptions {
  std::filesystem::path root = "/";                     // elsewhere: a recorded machine
  std::string model = {};                               // empty: the one that ships with Tyto
  std::optional<CalibrationFacts> calibration = {};     // measured on this machine
  std::function<void(std::string_view)> announce = {};  // gets what is being done; null: not wanted
};

// Reads what the machine says of itself. This machine's devices are tried out, too, which takes
// seconds; those of a recorded one are not.
SystemFacts look(const DoctorOptions& options);

// The file of `tyto doctor --json`; docs/doctor.md describes the fields.
std::string checks_json(const std::vector<Check>& checks);

}  // namespace tyto
