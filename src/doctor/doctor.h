// All that `tyto doctor` asks of a machine, and the answers as JSON.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/json_value.h"
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

// The file of `tyto doctor --report`: what others need to help, and nothing about its owner.

inline constexpr FileKind kDoctorReport = {"a report of doctor",
                                           "{\n  \"schema\": \"tyto-doctor-report/"};

// The fields of the receipt of a few tokens on a device; may throw.
using ShortRun = std::function<JsonValue(const std::string& device, const std::string& model)>;

// What the machine does not say.
struct ReportSource {
  std::string file;   // where it will be written
  JsonValue program;  // what was built
  ShortRun run;
};

// Versions, the machine, the checks, and the receipt of a short run on each real device that opens;
// docs/doctor.md describes the fields.
std::string doctor_report(const SystemFacts& facts, const std::vector<Check>& checks,
                          const ReportSource& source);

}  // namespace tyto
