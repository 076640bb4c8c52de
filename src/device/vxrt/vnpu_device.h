// The device "vnpu": the NPU's code on the virtual NPU.
#pragma once

#include <memory>

#include "device/device.h"

namespace tyto {

std::unique_ptr<Device> open_vnpu_device(const DeviceEnv& env);

}  // namespace tyto
