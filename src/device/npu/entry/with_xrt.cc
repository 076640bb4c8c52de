#include <filesystem>

#include "device/npu/formats/memory_plan.h"
#include "device/npu/npu_entry.h"
#include "device/npu/runtime/device_lock.h"
#include "device/npu/store/stored_kernels.h"

namespace tyto {

std::unique_ptr<Device> open_npu_device(const DeviceEnv& env) {
  NpuKernels kernels = stored_kernels(default_kernel_store(), StoredFor::real_npu,
                                      air_dims(env.model, npu_settings(env).prompt_rows));
  kernels.info.name = "npu";
  kernels.info.description = "XDNA2 NPU through XRT";
  describe_shapes(env, kernels, kernels.info);
  kernels.pinned_limit = pinnable_bytes();
  kernels.lock = npu_lock_path();
  return on_xrt::open_npu(env, std::move(kernels));
}

std::optional<std::string> why_no_npu() {
  constexpr const char* kNode = "/dev/accel/accel0";
  std::error_code ignored;
  if (std::filesystem::exists(kNode, ignored)) return std::nullopt;
  return std::string("there is no ") + kNode;
}

}  // namespace tyto
