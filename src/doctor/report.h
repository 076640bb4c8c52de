// The file of `tyto doctor --report`: what others need to help, and nothing about its owner.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "doctor/checks.h"

namespace tyto {

inline constexpr FileKind kDoctorReport = {"a report of doctor",
                                           "{\n  \"schema\": \"tyto-doctor-report/"};

// The fields of the receipt of a few tokens on a device; may throw.
using ShortRun =
    std::function<nlohmann::ordered_json(const std::string& device, const std::string& model)>;

// What the machine does not say.
struct ReportSource {
  std::string file;                // where it will be written
  nlohmann::ordered_json program;  // what was built
  ShortRun run;
};

// Versions, the machine, the checks, and the receipt of a short run on each real device that opens;
// docs/doctor.md describes the fields.
std::string doctor_report(const SystemFacts& facts, const std::vector<Check>& checks,
                          const ReportSource& source);

}  // namespace tyto
