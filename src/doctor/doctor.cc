#include "doctor/doctor.h"

#include <nlohmann/json.hpp>

#include "base/environment.h"
#include "base/error.h"
#include "device/npu/npu_entry.h"
#include "doctor/probe.h"
#include "model/stores/stores.h"

namespace tyto {
namespace {

using nlohmann::ordered_json;

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
  ordered_json rows = ordered_json::array();
  for (const Check& check : checks) {
    rows.push_back(
        {{"check", check.name}, {"state", to_string(check.state)}, {"detail", check.detail}});
    rows.back()["fix"] = nullptr;
    if (!check.fix.empty()) rows.back()["fix"] = check.fix;
  }
  ordered_json whole = {{"schema", "tyto-doctor/1"}, {"verdict", to_string(worst(checks))}};
  const Check* first = first_to_repair(checks);
  whole["first"] = nullptr;
  if (first != nullptr) whole["first"] = first->name;
  whole["checks"] = std::move(rows);
  return whole.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace tyto
