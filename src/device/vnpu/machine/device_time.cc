#include "device/vnpu/machine/device_time.h"

#include <algorithm>
#include <map>

#include "program/kernels.h"

namespace tyto::vxrt {
namespace {

// An xclbin's design is loaded as a whole. With this many locks a column, the law gives the 2.4 ms
// that were measured for one of 8 columns.
constexpr unsigned kLocksPerColumn = 41;

double fused_ms(const Instance& instance, Speed speed) {
  std::map<int32_t, uint64_t> weights;  // bytes by argument
  for (size_t i = 0; i < instance.places.size(); ++i) {
    const SlotPlace& place = instance.places[i];
    if (place.encoding != Encoding::q4nx) continue;
    uint64_t& bytes = weights[place.argument];
    bytes = std::max(bytes, reach(instance.program.slots[i], place));
  }
  uint64_t weight_bytes = 0, layers = 0, head_dim = 0;
  for (const auto& [argument, bytes] : weights) weight_bytes += bytes;
  for (const Launch& launch : instance.program.launches)
    if (launch.kernel == Kernel::attention) {
      ++layers;
      head_dim = launch.shape.head_dim;
    }
  return fused_decode_ms(weight_bytes, layers, head_dim, instance.stream->window, speed);
}

bool is_integer(const Program& program) {
  return std::any_of(program.launches.begin(), program.launches.end(),
                     [](const Launch& launch) { return launch.kernel == Kernel::matmul_i8; });
}

}  // namespace

Speed speed_of(const Hardware& hardware) {
  return relative_speed(npu_machine(hardware.machine), npu_machine("strix"));
}

double instance_ms(const Instance& instance, const Call& call, Speed speed) {
  if (instance.stream && instance.stream->window != 0) return fused_ms(instance, speed);
  // No law for integer GEMMs has been fitted: a GEMV's, whose time is that of its bytes.
  if (is_integer(instance.program))
    return byte_law_ms(cost_parameters().gemv,
                       static_cast<double>(cost(instance.program, call).bytes), speed);
  double kernels = 0;
  for (const Launch& launch : instance.program.launches)
    kernels += launch_ms(instance.program, launch, call, speed);
  return elf_ms(instance.counted_launches(), kernels);
}

// An ELF brings the configuration of each launch in its control code, so that the launches' own
// law holds its cost.
double switch_ms(const Image& image) {
  return context_switch_ms(image.form == ImageForm::elf ? 0 : kLocksPerColumn * image.columns);
}

}  // namespace tyto::vxrt
