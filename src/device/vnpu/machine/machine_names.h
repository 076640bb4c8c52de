// The machines the virtual NPU can pose as.
#pragma once

#include <optional>
#include <string_view>

namespace tyto::vxrt {

struct MachineName {
  std::string_view machine;
  std::string_view device;  // as the driver reports it
};

constexpr MachineName kMachineNames[] = {
    {"strix", "NPU Strix"},
    {"strix-halo", "NPU Strix Halo"},
    {"krackan", "NPU Krackan 1"},
};

constexpr std::optional<std::string_view> device_name(std::string_view machine) {
  for (const MachineName& entry : kMachineNames)
    if (entry.machine == machine) return entry.device;
  return std::nullopt;
}

}  // namespace tyto::vxrt
