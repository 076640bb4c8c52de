// Energy as JSON and as a table, the same wherever it is written.
#pragma once

#include <string>
#include <vector>

#include "base/json_value.h"
#include "power/measured_load.h"
#include "report/tables.h"

namespace tyto {

// An array with an object per rail: source, name, kind, read_from, joules, watts, j_per_token (null
// where there are none), reason (null where there are some).
JsonValue energy_json(const EnergyWindow& window, double tokens);

// What `tyto power` prints: what the loads add to idle, rail by rail.
std::string power_json(const std::vector<MeasuredLoad>& results, const PowerWindows& windows);
Table power_table(const MeasuredLoad& result, const PowerWindows& windows);

// In place of a result, where no rail can be read: the reasons.
std::string unreadable_rails_json(const std::vector<RailReader>& readers);

}  // namespace tyto
