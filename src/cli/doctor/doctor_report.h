// The file of `tyto doctor --report`: what others need to help, and nothing about its owner.
#pragma once

#include <string>
#include <vector>

#include "base/file_kind.h"
#include "cli/doctor/doctor_checks.h"

namespace tyto {

inline constexpr FileKind kDoctorReport = {"a report of doctor",
                                           "{\n  \"schema\": \"tyto-doctor-report/"};

// Versions, the machine, the checks, and the receipt of a short run on each real device that opens;
// docs/doctor.md describes the fields. `file` is where it will be written.
std::string doctor_report(const SystemFacts& facts, const std::vector<Check>& checks,
                          const std::string& file);

}  // namespace tyto
