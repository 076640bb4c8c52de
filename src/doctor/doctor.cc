#include "doctor/doctor.h"

#include <filesystem>

#include <fmt/format.h>

#include "base/environment.h"
#include "base/error.h"
#include "base/json_value.h"
#include "base/spelling.h"
#include "device/npu/npu_entry.h"
#include "doctor/facts.h"
#include "doctor/probe.h"
#include "model/stores/stores.h"

namespace tyto {
namespace {

ModelFacts look_at_model(const std::string& named) {
  ModelFacts facts;
  try {
    facts = probe_model(model_or_shipped(named));
  } catch (const Error& error) {  // no shipped model beside the program
    facts.name = "the shipped model";
    facts.error = error.what();
    facts.hint = error.hint;
  }
  facts.named = !named.empty();
  return facts;
}

}  // namespace

SystemFacts look(const DoctorOptions& options) {
  const auto announce = [&](std::string_view what) {
    if (options.announce) options.announce(what);
  };
  announce("looking at the machine");
  SystemFacts facts = read_system_facts(options.root);
  const bool this_machine = options.root == "/";
  if (this_machine && !facts.vulkan.loader.empty()) probe_vulkan(facts.vulkan.loader, facts.vulkan);
  try {
    facts.kernel_cache = probe_kernel_cache(cache_folder() / "kernels");
  } catch (const Error& error) {  // no variable says where the cache is
    facts.kernel_cache.problems.push_back(error.what());
  }
  if (!this_machine && options.model.empty()) return facts;
  announce("opening the model");
  facts.model = look_at_model(options.model);
  if (this_machine) {
    facts.build_has_xrt = built_with_xrt();
    announce("trying the devices");
    facts.devices = probe_devices(facts.vulkan);
    facts.calibration = options.calibration;
  }
  return facts;
}

std::string checks_json(const std::vector<Check>& checks) {
  JsonValue rows = JsonValue::array();
  for (const Check& check : checks) {
    rows.push_back(
        {{"check", check.name}, {"state", to_string(check.state)}, {"detail", check.detail}});
    rows.elements().back()["fix"] = nullptr;
    if (!check.fix.empty()) rows.elements().back()["fix"] = check.fix;
  }
  JsonValue whole = {{"schema", "tyto-doctor/1"}, {"verdict", to_string(worst(checks))}};
  const Check* first = first_to_repair(checks);
  whole["first"] = nullptr;
  if (first != nullptr) whole["first"] = first->name;
  whole["checks"] = std::move(rows);
  return whole.dump(2) + "\n";
}

namespace {

// One that fails says why, and the report goes on.
JsonValue run_on(const std::string& device, const std::string& model, const ShortRun& run_it) {
  JsonValue run = {{"device", device}, {"error", nullptr}, {"receipt", nullptr}};
  try {
    run["receipt"] = run_it(device, model);
  } catch (const std::exception& error) {
    run["error"] = error.what();
  }
  return run;
}

JsonValue runs_of(const SystemFacts& facts, const ShortRun& run_it) {
  JsonValue runs = JsonValue::array();
  if (facts.model.name.empty() || !facts.model.error.empty()) return runs;
  for (const DeviceProbe& probe : facts.devices)
    if (!probe.is_virtual && probe.open_error.empty() && probe.dispatch_error.empty())
      runs.push_back(run_on(probe.name, facts.model.name, run_it));
  return runs;
}

JsonValue machine_json(const SystemFacts& facts) {
  JsonValue npus = JsonValue::array();
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

void hide_private(JsonValue& value, const PrivateNames& names) {
  if (value.is_string()) value = without_private(value.text(), names);
  if (value.is_array())
    for (JsonValue& each : value.elements()) hide_private(each, names);
  if (value.is_object())
    for (auto& [name, member] : value.members()) hide_private(member, names);
}

}  // namespace

std::string doctor_report(const SystemFacts& facts, const std::vector<Check>& checks,
                          const ReportSource& source) {
  JsonValue rows = JsonValue::array();
  for (const Check& check : checks)
    rows.push_back({{"check", check.name},
                    {"state", to_string(check.state)},
                    {"detail", check.detail},
                    {"fix", check.fix}});
  JsonValue report = {{"schema", "tyto-doctor-report/1"},
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
  return report.dump(2) + "\n";
}

}  // namespace tyto
