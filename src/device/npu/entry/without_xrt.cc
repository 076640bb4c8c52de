#include "base/error.h"
#include "device/npu/npu_entry.h"

namespace tyto {

bool built_with_xrt() {
  return false;
}

std::unique_ptr<Device> open_npu_device(const DeviceEnv&) {
  throw Error(ErrorCode::device, "npu",
              "this build has no XRT: CMake found none of 2.20.115 or newer",
              "install XRT and its amdxdna plug-in, then build again; --device vnpu runs the same "
              "code on a virtual NPU");
}

std::optional<std::string> why_no_npu() {
  return "this build has no XRT";
}

}  // namespace tyto
