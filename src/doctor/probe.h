// The facts that are found by trying: devices compute, models open, Vulkan lists its devices.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "doctor/facts.h"

namespace tyto {

struct DeviceEntry;
struct DeviceEnv;

// What the device computes, compared with plain loops, then the rate at which it reads one large
// matrix: an image of a model's head where the kernel store has one for this device, else rmsnorm
// and matmul, which a real NPU has no images of and is not tried with.
DeviceProbe probe_device(const DeviceEntry& entry, const DeviceEnv& env);
// All of device_table(); but not Vulkan's where its drivers broke the process that asked them.
std::vector<DeviceProbe> probe_devices(const VulkanFacts& vulkan);

KernelCacheFacts probe_kernel_cache(const std::filesystem::path& store);

// Opens what -m names.
ModelFacts probe_model(const std::string& name);

// Asks the loader at `library` for the physical devices, in a process of its own: drivers have been
// seen to crash and to hang. Fills `enumerated`, `devices`, `error` and `broke_its_process`. That
// process is this program, started once more: its main() begins with list_gpus_if_asked(), which
// ends it there.
void probe_vulkan(const std::string& library, VulkanFacts& vulkan,
                  std::chrono::milliseconds timeout = std::chrono::seconds(10));
void list_gpus_if_asked(int argc, char** argv);

}  // namespace tyto
