// The CPU as a device: interprets Programs with the kernels of operations.cc.
#pragma once

#include <memory>

#include "device/device.h"

namespace tyto {

std::span<const DeviceSetting> cpu_setting_rows();
std::unique_ptr<Device> open_cpu_device(const DeviceEnv& env);

}  // namespace tyto
