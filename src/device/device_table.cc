#include <array>

#include "base/error.h"
#include "device/cpu/cpu_device.h"
#include "device/device.h"
#include "device/npu/npu_entry.h"
#include "device/vnpu/vnpu_device.h"

namespace tyto {
namespace {

constexpr std::array<DeviceEntry, 3> kDevices = {{
    {"cpu", "this machine's cores; runs every kernel", open_cpu_device},
    {"npu", "the XDNA2 NPU of a Ryzen AI processor, with kernels you have imported",
     open_npu_device},
    {"vnpu", "the NPU's code on a virtual NPU; computes for real, its time is modelled",
     open_vnpu_device},
}};

}  // namespace

std::span<const DeviceEntry> device_table() {
  return kDevices;
}

std::unique_ptr<Device> open_device(std::string_view name, const DeviceEnv& env) {
  std::string known;
  for (const DeviceEntry& entry : kDevices) {
    if (entry.name == name) return entry.open(env);
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
  }
  throw Error(ErrorCode::usage, "--device " + std::string(name), "no such device",
              "devices in this build: " + known);
}

}  // namespace tyto
