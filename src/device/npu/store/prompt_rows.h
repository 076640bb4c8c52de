// Which of the prefill images that there are a device opens: each number of rows has a set of them.
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

// Drops numbers of rows from `kernels` until the contexts go round, and says so as a fallback: the
// largest stays for long prompts, the smallest for short ones. What was asked for is not dropped
// but refused.
void fit_prompt_rows(const DeviceEnv& env, const NpuSettings& settings, NpuKernels& kernels);

}  // namespace tyto
