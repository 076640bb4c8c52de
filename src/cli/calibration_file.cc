#include "cli/calibration_file.h"

#include "base/error.h"
#include "base/spelling.h"
#include "cli/flags.h"
#include "cli/provenance.h"

namespace tyto {
namespace {

std::string text_of(const CalibratedModel& model) {
  const auto device_text = [](const CalibratedDevice& device) {
    return device.name + (device.is_modelled ? " (modelled)" : "");
  };
  return fmt::format("{} on {}: {}", model.name, model.time.substr(0, model.time.find('T')),
                     joined(model.devices, ", ", device_text));
}

}  // namespace

CalibratedMachine this_machine() {
  const MachineFacts facts = machine_facts();
  return {.cpu = facts.cpu, .cpu_threads = facts.cpu_threads, .tyto = TYTO_VERSION};
}

std::string settings_text(const EngineFlags& flags) {
  std::vector<std::string> given;
  if (flags.fusion) given.push_back("--fusion " + *flags.fusion);
  for (const auto& [name, value] : flags.settings)
    if (value) given.push_back(fmt::format("--{} {}", name, *value));
  return joined(given, " ");
}

CalibrationHere calibration_here(const std::string& named) {
  CalibrationHere here;
  try {
    here.path = named.empty() ? default_calibration() : std::filesystem::path(named);
  } catch (const Error& error) {  // the environment does not say where the cache is
    here.why_ignored = error.what();
    return here;
  }
  std::error_code ignored;
  if (named.empty() && !std::filesystem::exists(here.path, ignored)) return here;
  try {
    here.calibration = calibration_from(here.path);
  } catch (const Error& error) {
    if (!named.empty()) throw;
    here.why_ignored = error.what();
    return here;
  }
  if (const auto reason = why_not_here(*here.calibration, this_machine())) {
    here.calibration.reset();
    here.why_ignored = fmt::format("{} {}", here.path.string(), *reason);
  }
  return here;
}

std::string summary(const Calibration& calibration) {
  return joined(calibration.models, "; ", text_of);
}

std::string calibration_text() {
  constexpr const char* kMeasure =
      "`tyto bench --calibrate` measures this machine for --device auto";
  const CalibrationHere here = calibration_here();
  if (here.calibration) return "--device auto goes by " + summary(*here.calibration) + ".";
  if (here.why_ignored.empty()) return fmt::format("Nothing was measured yet: {}.", kMeasure);
  return fmt::format("{}: ignored; {}.", here.why_ignored, kMeasure);
}

}  // namespace tyto
