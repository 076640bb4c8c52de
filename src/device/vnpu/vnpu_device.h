// The device "vnpu": the NPU's code on the virtual NPU.
#pragma once

#include <cstdint>
#include <memory>

#include "device/device.h"
#include "device/npu/npu_device.h"

namespace tyto {

// What `tyto compile` writes: one of MLIR-AIR's programs, the fused decode at a window, or the int8
// GEMM whose K the window is, for the virtual NPU. A prefill program is for `window` rows, and for
// dims.seq where that is 0. `eps` is that of the norms in MLIR-AIR's
// programs; the fused decode has one of its own.
NpuImage virtual_image(AirDims dims, std::string_view program, uint32_t window, float eps);

// The windows of the fused decode that a context calls for: powers of two.
std::vector<uint32_t> decode_windows(uint32_t context);

std::unique_ptr<Device> open_vnpu_device(const DeviceEnv& env);

}  // namespace tyto
