// The NPU through XRT's public C++ API. npu_device.cc is compiled once per provider of the XRT
// names: against the system's XRT, and against the virtual NPU's headers (device/vxrt).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/device.h"

namespace tyto {

// A compiled program and how it is called.
struct NpuImage {
  std::vector<std::byte> elf;
  std::string kernel;               // what XRT is asked for: "main:o_ffn"
  std::vector<uint16_t> arguments;  // the program's slots in the order of the kernel's arguments
  int call_argument = -1;           // index of the first of Call's three scalars; -1: takes none
};

// What differs between the real NPU and the virtual one.
struct NpuKernels {
  DeviceInfo info;
  std::function<std::optional<std::string>(const Program&, const Launch&)> why_not;
  std::function<NpuImage(const Program&)> image_for;
  std::function<uint64_t()> modelled_ns;  // the virtual device's clock; empty: time is measured
};

namespace on_vxrt {
std::unique_ptr<Device> open_npu(const DeviceEnv& env, NpuKernels kernels);
}

}  // namespace tyto
