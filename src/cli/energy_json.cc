#include "cli/energy_json.h"

#include <nlohmann/json.hpp>

#include "power/energy_meter.h"

namespace tyto {

using nlohmann::ordered_json;

ordered_json rail_json(const PowerRail& rail) {
  const bool counter = rail.kind == RailKind::energy_counter;
  return {{"source", rail.source},
          {"rail", rail.name},
          {"kind", counter ? "energy counter" : "sampled power"},
          {"read_from", rail.path}};
}

ordered_json energy_json(const EnergyWindow& window, double tokens) {
  ordered_json rails = ordered_json::array();
  for (const RailEnergy& energy : window.rails) {
    ordered_json row = rail_json(energy.rail);
    row["seconds"] = energy.seconds;
    for (const char* value : {"joules", "watts", "j_per_token", "reason"}) row[value] = nullptr;
    if (energy.joules) row["joules"] = *energy.joules;
    if (energy.watts()) row["watts"] = *energy.watts();
    if (energy.joules && tokens > 0) row["j_per_token"] = *energy.joules / tokens;
    if (!energy.joules) row["reason"] = energy.reason;
    rails.push_back(std::move(row));
  }
  return rails;
}

}  // namespace tyto
