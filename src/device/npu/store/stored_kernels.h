// The images in the kernel store that fit a model: what the real NPU runs, and what `tyto compile`
// has written for the virtual one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "device/npu/npu_device.h"

namespace tyto {

std::filesystem::path default_kernel_store();  // $XDG_CACHE_HOME/tyto/kernels

AirDims air_dims(const ModelDims& model, uint32_t seq);

enum class StoredFor : uint8_t { real_npu, virtual_npu };

// The images in `store` that were built for a model, whatever `dims.seq`; what is missing or
// damaged is a reason given for each program, not an Error.
NpuKernels stored_kernels(const std::filesystem::path& store, StoredFor whom, AirDims dims);

// Chooses among the rows that there are prefill images for, and fills in what a device that runs
// these kernels says of itself.
void describe_shapes(const DeviceEnv& env, NpuKernels& kernels);

// Which of the images that there are a device opens: each number of prompt rows has a set of them.

// An XDNA2 has 16 contexts for all processes; each image takes one. Three are left to others.
constexpr size_t kMostContexts = 13;

// How many images a layer of the model, or its head, takes for such calls.
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
