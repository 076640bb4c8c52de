#include "device/vxrt/vnpu_device.h"

#include <fmt/format.h>

#include "device/npu/npu_device.h"
#include "device/vxrt/control.h"
#include "device/vxrt/image.h"

namespace tyto {
namespace {

// What stays on the host whatever the kernels, and what only a whole-token image takes along:
// MLIR-AIR's block images leave one-query attention, and with it the cache, to the host.
std::optional<std::string> why_not(const Program& program, const Launch& launch, Fusion fusion) {
  switch (launch.kernel) {
    case Kernel::embed:
      return "a table look-up is the host's";
    case Kernel::rope_table:
      return "the host writes the rotation row of each position";
    case Kernel::kv_append:
    case Kernel::attention:
      if (fusion == Fusion::token) return std::nullopt;
      return "the cache and one-query attention are the host's unless --fusion token";
    case Kernel::matmul: {
      const DType type = program.slots[launch.args[1].slot].dtype;
      if (type == DType::bf16) return std::nullopt;
      return fmt::format("its kernels take bf16 weights, these are {}", info(type).name);
    }
    default:
      return std::nullopt;
  }
}

// Every slot is an argument, scratch too: it may be another image's next input.
NpuImage image_for(const Program& program) {
  vxrt::Image image;
  image.instance = "program_" + to_hex(program_hash(program)).substr(0, 16);
  image.program = program;
  NpuImage result;
  for (size_t i = 0; i < program.slots.size(); ++i) {
    image.arguments.push_back({static_cast<uint16_t>(i), false});
    result.arguments.push_back(static_cast<uint16_t>(i));
  }
  result.elf = vxrt::serialise(image);
  result.kernel = "main:" + image.instance;
  result.call_argument = static_cast<int>(result.arguments.size());
  return result;
}

}  // namespace

std::unique_ptr<Device> open_vnpu_device(const DeviceEnv& env) {
  NpuKernels kernels;
  kernels.info = {.name = "vnpu",
                  .description = "virtual XDNA2 NPU, 8 x 4 cores",
                  .is_virtual = true,
                  .activations = DType::bf16};
  kernels.why_not = [fusion = env.fusion](const Program& program, const Launch& launch) {
    return why_not(program, launch, fusion);
  };
  kernels.image_for = image_for;
  kernels.modelled_ns = [] { return vxrt::counters().total.busy_ns; };
  return on_vxrt::open_npu(env, std::move(kernels));
}

}  // namespace tyto
