#pragma once

#include <memory>
#include <optional>
#include <string>

#include "device/device.h"

namespace tyto {

// Which definitions of these are linked is decided by whether CMake finds XRT.
bool built_with_xrt();

// The real NPU; a device Error says why there is none.
std::unique_ptr<Device> open_npu_device(const DeviceEnv& env);

// Why this machine cannot have one. Opens nothing: another process may hold it.
std::optional<std::string> why_no_npu();

}  // namespace tyto
