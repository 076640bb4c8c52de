#include "report/energy.h"

#include <fmt/format.h>

#include "base/json_value.h"

namespace tyto {
namespace {

// What every rail's object begins with.
JsonValue rail_json(const PowerRail& rail) {
  const bool counter = rail.kind == RailKind::energy_counter;
  return {{"source", rail.source},
          {"rail", rail.name},
          {"kind", counter ? "energy counter" : "sampled power"},
          {"read_from", rail.path}};
}

JsonValue as_json(const Spread& spread) {
  return {{"mean", spread.mean},
          {"stddev", spread.deviation},
          {"min", spread.min},
          {"max", spread.max}};
}

JsonValue as_json(const RailPower& power, double tokens) {
  JsonValue row = rail_json(power.rail);
  row["reason"] = nullptr;
  if (!power.reason.empty()) {
    row["reason"] = power.reason;
    return row;
  }
  row["idle_watts"] = as_json(power.idle_watts);
  row["load_watts"] = as_json(power.load_watts);
  row["load_joules"] = as_json(power.load_joules);
  row["net_joules"] = as_json(power.net);
  row["net_joules_uncertainty"] = power.uncertainty;
  row["above_idle"] = power.above_idle();
  row["net_joules_per_trial"] = power.net_joules;
  row["j_per_token"] = nullptr;
  row["net_j_per_token"] = nullptr;
  if (tokens > 0) {
    row["j_per_token"] = power.load_joules.mean / tokens;
    row["net_j_per_token"] = power.net.mean / tokens;
  }
  return row;
}

std::string plus_minus(double mean, double deviation) {
  return fmt::format("{:.2f} ± {:.2f}", mean, deviation);
}

}  // namespace

JsonValue energy_json(const EnergyWindow& window, double tokens) {
  JsonValue rails = JsonValue::array();
  for (const RailEnergy& energy : window.rails) {
    JsonValue row = rail_json(energy.rail);
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

std::string power_json(const std::vector<MeasuredLoad>& results, const PowerWindows& windows) {
  JsonValue loads = JsonValue::array();
  for (const MeasuredLoad& result : results) {
    JsonValue seconds = JsonValue::array();
    for (const EnergyWindow& window : result.windows) seconds.push_back(window.seconds);
    JsonValue rails = JsonValue::array();
    for (const RailPower& power : result.rails) rails.push_back(as_json(power, result.tokens));
    loads.push_back({{"load", result.load.name},
                     {"executed_on", result.load.executed_on},
                     {"tokens_per_trial", result.tokens},
                     {"seconds", std::move(seconds)},
                     {"rails", std::move(rails)}});
  }
  const JsonValue whole = {{"schema", "tyto-power/1"},
                           {"idle_seconds", windows.idle_seconds},
                           {"trials", windows.repetitions},
                           {"loads", std::move(loads)}};
  return whole.dump(2) + "\n";
}

std::string unreadable_rails_json(const std::vector<RailReader>& readers) {
  JsonValue rails = JsonValue::array();
  for (const RailReader& reader : readers) {
    rails.push_back(rail_json(reader.rail));
    rails.elements().back()["reason"] = reader.unavailable;
  }
  const JsonValue whole = {{"schema", "tyto-power/1"}, {"rails", std::move(rails)}};
  return whole.dump(2) + "\n";
}

Table power_table(const MeasuredLoad& result, const PowerWindows& windows) {
  double seconds = 0;
  for (const EnergyWindow& window : result.windows)
    seconds += window.seconds / static_cast<double>(result.windows.size());
  Table table{
      .id = "power",
      .title = fmt::format(
          "{}: {} x {:.1f} s between idle windows of {:.1f} s{}", result.load.name,
          windows.repetitions, seconds, windows.idle_seconds,
          result.load.executed_on.empty() ? "" : ", executed on " + result.load.executed_on),
      .columns = {{"rail", false}, {"idle W", true, 2}, {"load W", true, 1}, {"above idle J"}}};
  const bool has_tokens = result.tokens > 0;
  if (has_tokens) table.columns.push_back({"J/token"});
  table.columns.push_back({"", false});
  for (const RailPower& power : result.rails) {
    TableRow row{{power.rail.label()}};
    if (power.reason.empty())
      row.cells.insert(row.cells.end(),
                       {plus_minus(power.idle_watts.mean, power.idle_watts.deviation),
                        plus_minus(power.load_watts.mean, power.load_watts.deviation),
                        plus_minus(power.net.mean, power.uncertainty)});
    const bool is_told = power.reason.empty() && power.above_idle();
    if (is_told && has_tokens)
      row.cells.push_back(fmt::format("{:.3g}", power.net.mean / result.tokens));
    row.cells.resize(table.columns.size());
    if (!power.reason.empty())
      row.cells.back() = "n/a (" + power.reason + ")";
    else if (!is_told)
      row.cells.back() = "cannot be told from idle";
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace tyto
