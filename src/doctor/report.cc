#include "doctor/report.h"

#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/spelling.h"
#include "doctor/facts.h"

namespace tyto {
namespace {

using nlohmann::ordered_json;

// One that fails says why, and the report goes on.
ordered_json run_on(const std::string& device, const std::string& model, const ShortRun& run_it) {
  ordered_json run = {{"device", device}, {"error", nullptr}, {"receipt", nullptr}};
  try {
    run["receipt"] = run_it(device, model);
  } catch (const std::exception& error) {
    run["error"] = error.what();
  }
  return run;
}

ordered_json runs_of(const SystemFacts& facts, const ShortRun& run_it) {
  ordered_json runs = ordered_json::array();
  if (facts.model.name.empty() || !facts.model.error.empty()) return runs;
  for (const DeviceProbe& probe : facts.devices)
    if (!probe.is_virtual && probe.open_error.empty() && probe.dispatch_error.empty())
      runs.push_back(run_on(probe.name, facts.model.name, run_it));
  return runs;
}

ordered_json machine_json(const SystemFacts& facts) {
  ordered_json npus = ordered_json::array();
  for (const PciNpu& npu : facts.npus)
    npus.push_back({{"pci", fmt::format("1022:{:04x}", npu.device)},
                    {"revision", npu.revision},
                    {"product", product_of(npu)},
                    {"driver", npu.driver}});
  return {{"cpu", facts.cpu.model},
          {"cpu_threads", facts.cpu.threads},
          {"memory_bytes", facts.memory.total_bytes},
          {"kernel", facts.stack.kernel},
          {"npus", std::move(npus)}};
}

void hide_private(ordered_json& value, const PrivateNames& names) {
  if (value.is_string())
    value = without_private(value.get_ref<const std::string&>(), names);
  else if (value.is_structured())
    for (ordered_json& each : value) hide_private(each, names);
}

}  // namespace

std::string doctor_report(const SystemFacts& facts, const std::vector<Check>& checks,
                          const ReportSource& source) {
  ordered_json rows = ordered_json::array();
  for (const Check& check : checks)
    rows.push_back({{"check", check.name},
                    {"state", to_string(check.state)},
                    {"detail", check.detail},
                    {"fix", check.fix}});
  ordered_json report = {{"schema", "tyto-doctor-report/1"},
                         {"time", utc_now()},
                         {"tyto", source.program},
                         {"machine", machine_json(facts)},
                         {"verdict", to_string(worst(checks))},
                         {"checks", std::move(rows)},
                         {"runs", runs_of(facts, source.run)}};
  std::vector<std::filesystem::path> folders;
  for (const std::string& path : {source.file, facts.model.name})
    if (!path.empty()) folders.push_back(std::filesystem::absolute(path).parent_path());
  hide_private(report, private_names(folders));
  report["schema"] = "tyto-doctor-report/1";
  return report.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace tyto
