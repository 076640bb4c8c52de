#include <array>

#include "base/error.h"
#include "base/spelling.h"
#include "device/cpu/cpu_device.h"
#include "device/device.h"
#include "device/npu/npu_entry.h"
#include "device/npu/npu_settings.h"
#include "device/vnpu/vnpu_device.h"
#include "device/vulkan/vulkan_device.h"

namespace tyto {
namespace {

constexpr std::array<DeviceEntry, 4> kDevices = {{
    {"cpu", "CPU", "the cores of this machine; runs every kernel", true, cpu_setting_rows,
     open_cpu_device},
    {"npu", "NPU", "the XDNA2 NPU of a Ryzen AI processor; needs imported kernel images", false,
     npu_setting_rows, open_npu_device},
    {"vnpu", "NPU", "a virtual NPU that runs the NPU's code; results are real, times are modelled",
     false, vnpu_setting_rows, open_vnpu_device, true},
    {"vulkan", "GPU", "a GPU through Vulkan", false, vulkan_setting_rows, open_vulkan_device},
}};

}  // namespace

std::span<const DeviceEntry> device_table() {
  return kDevices;
}

const DeviceEntry& device_entry(std::string_view name) {
  std::vector<std::string_view> known;
  for (const DeviceEntry& entry : kDevices) {
    if (entry.name == name) return entry;
    known.push_back(entry.name);
  }
  throw Error(ErrorCode::usage, "--device " + std::string(name), "no such device",
              "devices in this build: " + joined(known, ", "));
}

std::unique_ptr<Device> open_device(std::string_view name, const DeviceEnv& env) {
  return device_entry(name).open(env);
}

}  // namespace tyto
