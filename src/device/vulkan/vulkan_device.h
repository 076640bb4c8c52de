// A GPU through Vulkan, as a device: the same Programs as recorded command buffers.
#pragma once

#include <memory>

#include "device/device.h"

namespace tyto {

std::span<const DeviceSetting> vulkan_setting_rows();
std::unique_ptr<Device> open_vulkan_device(const DeviceEnv& env);

}  // namespace tyto
