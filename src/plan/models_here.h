// Which of the models on this machine run on it, and where.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/progress.h"
#include "model/description.h"
#include "model/stores/local_models.h"

namespace tyto {

struct MachineHere {
  uint64_t memory_bytes = 0;
  std::optional<std::string> why_no_npu = {};  // empty: there is one
  std::filesystem::path kernels = {};          // images that were imported
};
MachineHere machine_here();

enum class NpuImages : uint8_t {
  none,      // they are not built for this model
  possible,  // they could be built, and are not imported
  imported,
};

struct ModelHere {
  LocalModel model = {};
  std::string shown = {};                            // the shortest name that means it
  std::optional<ModelDescription> description = {};  // none: it cannot be opened
  NpuImages npu = NpuImages::none;
  std::string reason = {};  // why it does not run here, as a sentence; empty: it does
  std::string hint = {};    // what to do about it
  bool is_model = true;     // no: it is damaged, incomplete or something else

  bool runs() const { return reason.empty(); }
};

std::vector<ModelHere> models_here(const Listing& listing, const MachineHere& machine,
                                   const Progress& progress);

// "cpu, npu", "cpu, npu (no images imported)", "cpu (has no tokenizer)" or "no: its weights are
// q2_k".
std::string where_it_runs(const ModelHere& model, const MachineHere& machine);

}  // namespace tyto
