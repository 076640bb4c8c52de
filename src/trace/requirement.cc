#include "trace/requirement.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/joined.h"

namespace tyto {
namespace {

[[noreturn]] void fail(const Requirement& requirement, const std::string& what) {
  throw Error(ErrorCode::require, "--require " + to_text(requirement), what);
}

// What the others did; there are two or three, so that their order does not matter.
std::string shares(const std::vector<DeviceCounters>& executed, double flops) {
  return joined(executed, ", ", [&](const DeviceCounters& device) {
    return fmt::format("{} {:.0f} %", device.device,
                       flops > 0 ? 100 * static_cast<double>(device.flops) / flops : 0);
  });
}

void check_phase(const Requirement& requirement, Phase phase,
                 const std::vector<DeviceCounters>& executed) {
  double flops = 0;
  const DeviceCounters* wanted = nullptr;
  for (const DeviceCounters& device : executed) {
    flops += static_cast<double>(device.flops);
    if (device.device == requirement.device) wanted = &device;
  }
  if (wanted == nullptr || wanted->completions == 0)
    fail(requirement, fmt::format("it completed no work in {}", name(phase)));
  if (wanted->is_virtual) fail(requirement, "the device is virtual, its time modelled");
  if (wanted->completions != wanted->submissions)
    fail(requirement, fmt::format("it completed {} of {} submissions in {}", wanted->completions,
                                  wanted->submissions, name(phase)));
  if (static_cast<double>(wanted->flops) * 2 <= flops)
    fail(requirement, fmt::format("it did not do most of {}: {} of the arithmetic", name(phase),
                                  shares(executed, flops)));
}

}  // namespace

std::string_view name(Phase phase) {
  return phase == Phase::prefill ? "prefill" : "decode";
}

Requirement parse_requirement(const std::string& text) {
  const size_t colon = text.find(':');
  Requirement result{.device = text.substr(0, colon), .phase = {}};
  if (colon == std::string::npos) return result;
  const std::string phase = text.substr(colon + 1);
  if (phase == "prefill")
    result.phase = Phase::prefill;
  else if (phase == "decode")
    result.phase = Phase::decode;
  if (!result.phase || result.device.empty())
    throw Error(ErrorCode::usage, "--require " + text, "expected DEVICE or DEVICE:phase",
                "the phases are prefill and decode");
  return result;
}

std::string to_text(const Requirement& requirement) {
  if (!requirement.phase) return requirement.device;
  return requirement.device + ":" + std::string(name(*requirement.phase));
}

void check_requirement(const Requirement& requirement, const PhaseCounters& executed) {
  if (requirement.empty()) return;
  bool any = false;
  for (const Phase phase : {Phase::prefill, Phase::decode}) {
    const auto& devices = phase == Phase::prefill ? executed.prefill : executed.decode;
    if (requirement.phase ? *requirement.phase != phase : devices.empty()) continue;
    if (devices.empty()) fail(requirement, fmt::format("no {} ran", name(phase)));
    check_phase(requirement, phase, devices);
    any = true;
  }
  if (!any) fail(requirement, "nothing ran");
}

}  // namespace tyto
