#include "cli/doctor/doctor_report.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/utc_time.h"
#include "cli/doctor/private_names.h"
#include "cli/flags.h"
#include "cli/progress_line.h"
#include "cli/provenance.h"
#include "engine/engine.h"
#include "evidence/receipt_json.h"

namespace tyto {
namespace {

using nlohmann::ordered_json;

constexpr const char* kPrompt = "Tell me a story about a fox who finds a lamp.";
constexpr uint32_t kTokens = 16;

ordered_json receipt_of(const std::string& device, const std::string& model) {
  EngineFlags flags;
  flags.model.model = model;
  flags.device = device;
  Engine engine(engine_options(flags));
  Sampler sampler({.temperature = 0});
  Request request;
  request.prompt = engine.tokenizer().encode(kPrompt);
  request.max_tokens = kTokens;
  request.ignore_eos = true;
  Answer answer =
      generate(engine.generator(), sampler, request, [](std::string_view) { return true; });
  engine.complete(answer.receipt);
  return receipt_fields(answer.receipt, receipt_context(engine));
}

// One that fails says why, and the report goes on.
ordered_json run_on(const std::string& device, const std::string& model) {
  announce(fmt::format("running a few tokens on {}", device));
  ordered_json run = {{"device", device}, {"error", nullptr}, {"receipt", nullptr}};
  try {
    run["receipt"] = receipt_of(device, model);
  } catch (const std::exception& error) {
    run["error"] = error.what();
  }
  return run;
}

ordered_json runs_of(const SystemFacts& facts) {
  ordered_json runs = ordered_json::array();
  if (facts.model.name.empty() || !facts.model.error.empty()) return runs;
  for (const DeviceProbe& probe : facts.devices)
    if (!probe.is_virtual && probe.open_error.empty() && probe.dispatch_error.empty())
      runs.push_back(run_on(probe.name, facts.model.name));
  return runs;
}

ordered_json program_json() {
  const BuildFacts built = build_facts();
  return {{"version", TYTO_VERSION},
          {"commit", built.commit},
          {"compiler", built.compiler},
          {"build_type", built.build_type},
          {"instruction_sets", built.instruction_sets},
          {"xrt", built.xrt},
          {"libraries", built.libraries}};
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
                          const std::string& file) {
  ordered_json rows = ordered_json::array();
  for (const Check& check : checks)
    rows.push_back({{"check", check.name},
                    {"state", to_string(check.state)},
                    {"detail", check.detail},
                    {"fix", check.fix}});
  ordered_json report = {{"schema", "tyto-doctor-report/1"},
                         {"time", utc_now()},
                         {"tyto", program_json()},
                         {"machine", machine_json(facts)},
                         {"verdict", to_string(worst(checks))},
                         {"checks", std::move(rows)},
                         {"runs", runs_of(facts)}};
  std::vector<std::filesystem::path> folders;
  for (const std::string& path : {file, facts.model.name})
    if (!path.empty()) folders.push_back(std::filesystem::absolute(path).parent_path());
  hide_private(report, private_names(folders));
  report["schema"] = "tyto-doctor-report/1";
  return report.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace tyto
