// Which of the images that there are a device opens: each number of prompt rows has a set of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "device/npu/npu_device.h"

namespace tyto {

// An XDNA2 has 16 contexts for all processes; each image takes one. Three are left to others.
constexpr size_t kMostContexts = 13;

// Of the model: how many images a layer, or the head, takes for such calls.
size_t count_programs(const AirDims& dims, AirPhase phase);

// Those that were asked for, or all that are `there` if none were. A usage Error says what there is
// where one is missing.
std::vector<uint32_t> asked_rows(std::span<const uint32_t> there, std::span<const uint32_t> asked);

// Drops images from `kernels` until the contexts go round, and says so as fallbacks: short windows
// of the decode where not even one number of rows would be left, then numbers of rows. The largest
// stays for long prompts, the smallest for short ones. What was asked for is not dropped but
// refused.
void fit_contexts(const DeviceEnv& env, const NpuSettings& settings, NpuKernels& kernels);

}  // namespace tyto
