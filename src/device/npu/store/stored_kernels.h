// The images in the kernel store that fit a model: what the real NPU runs, and what `tyto compile`
// has written for the virtual one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

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

}  // namespace tyto
