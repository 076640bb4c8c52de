#include "cli/doctor/doctor_probe.h"

#include "base/error.h"
#include "device/npu/store/kernel_store.h"
#include "model/model.h"

namespace tyto {

KernelCacheFacts probe_kernel_cache(const std::filesystem::path& store) {
  KernelCacheFacts facts;
  facts.folder = store.string();
  try {
    const CheckReport report = check_store(store, false);
    facts.images = report.images;
    for (const ImageProblem& problem : report.problems)
      facts.problems.push_back(fmt::format("{} {}: {}", to_string(problem.fault),
                                           problem.entry.empty() ? problem.file : problem.entry,
                                           problem.reason));
  } catch (const Error& error) {
    facts.problems.push_back(error.what());
  }
  return facts;
}

ModelFacts probe_model(const std::string& name) {
  ModelFacts facts;
  facts.name = name;
  try {
    const Model model = open_model(find_model(name));
    facts.format = model.format;
    facts.weight_bytes = model.weight_bytes();
  } catch (const Error& error) {
    facts.error = error.what();
    facts.hint = error.hint;
  }
  return facts;
}

}  // namespace tyto
