// --device auto: which device, by what was measured on this machine or else is modelled.
// docs/run.md is the user's side.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plan/calibration.h"
#include "plan/device_choice.h"

namespace tyto {

struct EngineOptions;

inline constexpr const char* kAutoDevice = "auto";

struct AutoDevice {
  std::vector<std::string> among = {};  // device names; none: all that are not virtual
  std::string calibration = {};         // a file; empty: the one in the user's folder
};

// An unknown name is a usage Error.
std::vector<std::string> devices_to_choose_from(const std::vector<std::string>& among);

// Makes options.device the fastest of `names` for the work, sets where prompts go, and drops
// settings that only the others have. Returns the reasons, a line each. What options.require asks
// for is then the only choice, and not to have it a require Error. `announce` hears what is being
// done.
std::vector<std::string> choose_device(EngineOptions& options, const AutoDevice& automatic,
                                       const std::vector<std::string>& names, Workload work,
                                       const std::function<void(const std::string&)>& announce);

// Drops settings of `devices` that neither side of the options has.
void drop_idle_settings(EngineOptions& options, const std::vector<std::string>& devices);
// The options for one of several devices.
EngineOptions options_for(const std::string& device, const std::vector<std::string>& devices,
                          EngineOptions options);

// A device that this build does not have is a usage Error.
void check_required_device(const std::string& require);

// Tokens of a text, as far as that can be said without its tokenizer.
uint32_t about_tokens(size_t bytes);

// "cpu", or "vnpu/cpu" where prompts and tokens have different ones.
std::string device_names(const EngineOptions& options);

// The calibration that this machine has, or why it has none.

CalibratedMachine this_machine();

// What was asked of a device and decides its speed, as flags; empty: nothing.
std::string settings_text(const EngineOptions& options);

struct CalibrationHere {
  std::filesystem::path path;
  std::optional<Calibration> calibration = {};  // this machine's, as it is now
  // A sentence about a file that is there and of no use; may be empty.
  std::string why_ignored = {};
};
// `named` is what --calibration says; empty: the user's own. A named file that cannot be read is an
// Error, the user's own is ignored then.
CalibrationHere calibration_here(const std::string& named = "");

// "llama 1.24B bf16 on 2026-11-16: cpu, vulkan": what was measured and with what.
std::string summary(const Calibration& calibration);
std::string calibration_text();  // a sentence about what --device auto goes by here

}  // namespace tyto
