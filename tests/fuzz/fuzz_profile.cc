// Reads arbitrary bytes as a saved profile and makes every report of it.
// Anything but an Error that leaves it is a finding.
#include <cstdint>
#include <string>

#include "base/error.h"
#include "report/report.h"

namespace tyto {
namespace {

void run(const std::string& text) {
  try {
    const Profile profile = profile_from_json(text, "profile.json");
    text_report(profile, {.colour = true});
    html_report(profile);
    json_report(profile);
    diff_tables(profile, profile);
    if (!profile.runs.empty()) perfetto_report(profile, typical_run(profile));
  } catch (const Error&) {
  }
}

}  // namespace
}  // namespace tyto

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tyto::run(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
