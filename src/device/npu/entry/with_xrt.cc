#include <algorithm>
#include <filesystem>

#include "device/npu/device_lock.h"
#include "device/npu/driver_stack.h"
#include "device/npu/formats/memory_plan.h"
#include "device/npu/npu_entry.h"
#include "device/npu/store/kernel_store.h"

namespace tyto {

bool built_with_xrt() {
  return true;
}

std::unique_ptr<Device> open_npu_device(const DeviceEnv& env) {
  NpuKernels kernels =
      stored_kernels(default_kernel_store(), StoredFor::real_npu, air_dims(env.model, 0));
  if (kernels.decode_elf > 0 && !on_xrt::knows_scratchpads()) {
    kernels.decode_elf = 0;
    env.trace.fallback(
        "the decode as one ELF is left out: this program was built with an XRT without "
        "run::get_ctrl_scratchpad_bo");
  }
  kernels.prompt_rows = asked_rows(kernels.prompt_rows, npu_settings(env).prompt_rows);
  kernels.info.name = "npu";
  kernels.info.description = "XDNA2 NPU through XRT";
  const std::vector<PciNpu> npus = read_pci_npus("/");
  if (const PciNpu* npu = choose_npu(npus, npu_settings(env).device)) {
    kernels.address = npu->address;
    kernels.info.description += " at " + npu->address;
    kernels.info.machine = machine_with(*npu);
  }
  kernels.info.driver = driver_text(read_driver_stack("/"));
  describe_shapes(env, kernels);
  kernels.pinned_limit = pinnable_bytes();
  if (heap_grows(read_driver_stack("/")).value_or(false)) kernels.heap_limit = kGrownHeapBytes;
  kernels.lock = npu_lock_path();
  kernels.version_faults = [] { return version_faults(read_driver_stack("/")); };
  return on_xrt::open_npu(env, std::move(kernels));
}

std::optional<std::string> why_no_npu() {
  const std::vector<AccelDevice> devices = read_accel_devices("/");
  if (std::any_of(devices.begin(), devices.end(), [](const auto& each) { return each.is_npu(); }))
    return std::nullopt;
  return "no /dev/accel/accel* belongs to the amdxdna driver";
}

}  // namespace tyto
