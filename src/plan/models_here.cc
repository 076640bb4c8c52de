#include "plan/models_here.h"

#include <algorithm>

#include "base/error.h"
#include "base/machine.h"
#include "base/spelling.h"
#include "base/utf8.h"
#include "device/npu/npu_entry.h"
#include "device/npu/store/kernel_store.h"
#include "llama/pipeline.h"
#include "model/stores/local_models.h"
#include "plan/air_images.h"
#include "plan/build_advice.h"

namespace tyto {
namespace {

constexpr uint64_t kPositions = 4096;   // a conversation that one would call short
constexpr size_t kLongestReason = 24;   // in a table
constexpr uint32_t kAnyPromptRows = 0;  // images of any number of them will do

bool can_be_built(const AirDims& dims) try {
  build_advice(dims, "");
  return true;
} catch (const Error&) {
  return false;
}

NpuImages images_for(const Config& config, const std::filesystem::path& store) try {
  if (!differences_from_llama(config).empty()) return NpuImages::none;
  const AirDims dims = air_dims(model_dims(config, 0), kAnyPromptRows);
  const NpuKernels kernels = stored_kernels(store, StoredFor::real_npu, dims);
  if (!kernels.prompt_rows.empty() || !kernels.windows.empty()) return NpuImages::imported;
  return can_be_built(dims) ? NpuImages::possible : NpuImages::none;
} catch (const Error&) {
  return NpuImages::none;  // a store that cannot be read is doctor's business
}

// Weights and the cache of a short conversation, or the system swaps all the time.
void check_memory(const MachineHere& machine, ModelHere& here) {
  const Config& config = here.description->config;
  const uint64_t positions = std::min<uint64_t>(kPositions, config.context);
  const uint64_t needed = here.description->weight_bytes + kept_kv_bytes(config, positions);
  if (needed <= machine.memory_bytes) return;
  here.reason = fmt::format("it needs {}, with {} positions; this machine has {}",
                            human_bytes(needed), positions, human_bytes(machine.memory_bytes));
  here.hint = "take a smaller model, or the same with fewer bits";
}

// Without the path in front of it, which the list has already, and the file of a folder.
std::string fact_of(const Error& error, const std::filesystem::path& path) {
  const std::string fact = error.what(), place = path.string();
  if (!fact.starts_with(place)) return fact;
  const size_t end = fact.find(": ", place.size());
  return end == std::string::npos ? fact : fact.substr(end + 2);
}

ModelHere look_at(const LocalModel& model, const MachineHere& machine) {
  ModelHere here{.model = model};
  if (!model.why_not.empty()) {
    here.reason = model.why_not;
    here.is_model = false;
    return here;
  }
  try {
    here.description = describe_model(model.path);
    check_memory(machine, here);
    if (!machine.why_no_npu) here.npu = images_for(here.description->config, machine.kernels);
  } catch (const Error& error) {
    here.reason = fact_of(error, model.path);
    here.hint = error.hint;
    here.is_model = error.code == ErrorCode::unsupported;
  }
  return here;
}

}  // namespace

MachineHere machine_here() {
  MachineHere machine{.memory_bytes = machine_facts().memory_bytes, .why_no_npu = why_no_npu()};
  if (!machine.why_no_npu) machine.kernels = default_kernel_store();
  return machine;
}

std::vector<ModelHere> models_here(const Listing& listing, const MachineHere& machine,
                                   const Progress& progress) {
  const ModelNames names(listing.models);
  std::vector<ModelHere> result;
  for (const LocalModel& model : listing.models) {
    result.push_back(look_at(model, machine));
    result.back().shown = names.shortest(model);
    if (progress) progress("looking at models", result.size(), listing.models.size());
  }
  return result;
}

std::string where_it_runs(const ModelHere& model, const MachineHere& machine) {
  if (!model.runs()) {
    const size_t clause = std::min(model.reason.find_first_of(",;("), model.reason.find(": "));
    const std::string first = model.reason.substr(0, clause);
    return "no: " +
           printable_line(first.substr(0, first.find_last_not_of(' ') + 1), kLongestReason);
  }
  const bool has_tokenizer = model.description && model.description->has_tokenizer;
  std::string where = has_tokenizer ? "cpu" : "cpu (has no tokenizer)";
  if (machine.why_no_npu || model.npu == NpuImages::none) return where;
  return where + (model.npu == NpuImages::imported ? ", npu" : ", npu (no images imported)");
}

}  // namespace tyto
