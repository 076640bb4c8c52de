#include "trace/energy_report.h"

#include <fmt/format.h>

#include <algorithm>

namespace tyto {

std::string joules_per_token(const RailEnergy& energy, double tokens) {
  if (!energy.joules) return "n/a (" + energy.reason + ")";
  if (tokens <= 0) return "n/a (no tokens)";
  return fmt::format("{:.3g} J/token", *energy.joules / tokens);
}

std::vector<std::string> energy_lines(const Receipt& receipt) {
  const double decoded = decoded_tokens(receipt);
  std::vector<std::string> lines;
  for (size_t i = 0; i < receipt.prefill_energy.rails.size(); ++i) {
    const RailEnergy& prefill = receipt.prefill_energy.rails[i];
    const RailEnergy& decode = receipt.decode_energy.rails[i];
    std::string line = prefill.rail.label() + ": ";
    if (!prefill.joules && !decode.joules && prefill.reason == decode.reason) {
      line += "n/a (" + prefill.reason + ")";
    } else {
      line += fmt::format("prefill {}, decode {}", joules_per_token(prefill, receipt.prompt_tokens),
                          joules_per_token(decode, decoded));
      if (decode.watts()) line += fmt::format(" at {:.3g} W", *decode.watts());
    }
    lines.push_back(line);
  }
  return lines;
}

std::vector<std::string> energy_reasons(const EnergyWindow& window) {
  std::vector<std::string> reasons;
  for (const RailEnergy& energy : window.rails)
    if (!energy.joules) reasons.push_back(energy.rail.label() + ": n/a (" + energy.reason + ")");
  return reasons;
}

void drop_simulated_energy(Receipt& receipt) {
  const bool simulated =
      std::any_of(receipt.devices.begin(), receipt.devices.end(),
                  [](const DeviceCounters& device) { return device.is_virtual; });
  if (!simulated) return;
  for (EnergyWindow* window : {&receipt.prefill_energy, &receipt.decode_energy})
    for (RailEnergy& energy : window->rails) {
      if (!energy.joules) continue;
      energy.joules.reset();
      energy.reason = "a virtual device took part: the energy is the simulation's";
    }
}

Energy energy_of(const Receipt& receipt) {
  Energy energy{.reason = "no power rail was found"};
  const auto& prefill = receipt.prefill_energy.rails;
  const auto& decode = receipt.decode_energy.rails;
  for (size_t i = 0; i < std::min(prefill.size(), decode.size()); ++i) {
    if (prefill[i].joules && decode[i].joules)
      return {prefill[i].joules, decode[i].joules, prefill[i].rail.name, ""};
    if (i == 0) energy.reason = prefill[i].joules ? decode[i].reason : prefill[i].reason;
  }
  return energy;
}

}  // namespace tyto
