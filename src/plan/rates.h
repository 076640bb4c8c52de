#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "device/device.h"
#include "model/description.h"
#include "plan/device_choice.h"
#include "plan/what_if.h"

namespace tyto {

// Which rows of a plan Tyto can run, what that takes, and which one to choose.

// This machine's NPU, as far as a plan goes.
struct NpuHere {
  std::string machine;  // as --machine has it; empty: there is no NPU that is modelled
  std::string found;    // on the PCI bus, in words; empty: no NPU at all
};
NpuHere npu_here(const std::filesystem::path& root);

// The images in the kernel store that fit a model. A store that cannot be read has none.
struct ImagesHere {
  bool bf16 = false;  // all of a prompt, of a token, and the head
  bool q4nx = false;  // all of a prompt, and a window of the 4-bit decode
};
ImagesHere images_here(const std::filesystem::path& store, const Config& config);

// Fills in what a modelled row says of that.
void say_what_runs(PlanRow& row, const PlanOption& option, const Config& config,
                   const ImagesHere& images);

// Adds to what it needs that it locks more memory than may be, where that is so.
void say_what_fits(PlanRow& row, uint64_t most_pinned);

// The fastest decode of those that Tyto can run and whose code has run on hardware, that lock no
// more memory than may be and are of one of `machines`. None where there is no such row.
std::optional<size_t> best_row(std::span<const PlanRow> rows, std::span<const std::string> machines,
                               uint64_t most_pinned);

// How fast a device should be with a model, where it was not measured.

// By the cost model where its laws are the device's own, else by what memory and arithmetic allow
// at best: no device reaches that, but all miss it alike. Unknown where neither is known.
DeviceRates modelled_rates(const DeviceInfo& device, const ModelDescription& model,
                           const Workload& work, Fusion fusion);

// The same of a device whose memory and arithmetic were measured just now.
DeviceRates estimated_rates(const std::string& device, const DeviceLimits& measured,
                            const ModelDescription& model, const Workload& work);

}  // namespace tyto
