#pragma once

#include <memory>
#include <optional>
#include <string>

#include "device/device.h"

namespace tyto {

// The real NPU; a device Error says why there is none. Which definition is linked is decided by
// whether CMake finds XRT.
std::unique_ptr<Device> open_npu_device(const DeviceEnv& env);

// Why this machine cannot have one. Opens nothing: another process may hold it.
std::optional<std::string> why_no_npu();

}  // namespace tyto
