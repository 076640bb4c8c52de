// Energy windows as JSON, the same wherever they are written.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace tyto {

struct EnergyWindow;
struct PowerRail;

// An array with an object per rail: source, name, kind, read_from, joules, watts, j_per_token (null
// where there are none), reason (null where there are some).
nlohmann::ordered_json energy_json(const EnergyWindow& window, double tokens);

// What every rail's object begins with.
nlohmann::ordered_json rail_json(const PowerRail& rail);

}  // namespace tyto
