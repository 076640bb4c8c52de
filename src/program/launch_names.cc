#include "program/launch_names.h"

#include "program/kernel_spec.h"

namespace tyto {
namespace {

// Matrix products are told apart by the step's name: the kernel is the same.
Operator operator_of(const Launch& launch, const std::string& label) {
  switch (launch.kernel) {
    case Kernel::attention:
    case Kernel::kv_append:
      return Operator::attention;
    case Kernel::rmsnorm:
    case Kernel::rope:
    case Kernel::rope_table:
      return Operator::norm_rope;
    case Kernel::swiglu:
      return Operator::feed_forward;
    case Kernel::matmul:
    case Kernel::matmul_q8:
      if (label == "lm_head") return Operator::head;
      return label == "gate" || label == "up" || label == "down" ? Operator::feed_forward
                                                                 : Operator::projection;
    default:
      return Operator::other;
  }
}

}  // namespace

Event launch_event(Trace& trace, const Program& program, size_t index, uint16_t name,
                   const Call& call, uint8_t device) {
  const Launch& launch = program.launches[index];
  const Cost declared = spec(launch.kernel).cost(program, launch, call);
  return {.bytes = declared.bytes,
          .flops = declared.flops,
          .dispatch = trace.dispatch(),
          .token = trace.token(),
          .position = call.position,
          .rows = call.tokens,
          .name = name,
          .device = device,
          .kind = EventKind::launch};
}

std::vector<uint16_t> launch_names(Trace& trace, const Program& program) {
  std::vector<uint16_t> result;
  for (const Launch& launch : program.launches) {
    EventName name = event_name(launch.step);
    name.block = event_name(launch.block).label;
    name.op = operator_of(launch, name.label);
    result.push_back(trace.name(name));
  }
  return result;
}

void record_launches(Trace& trace, const Program& program, std::span<const uint16_t> names,
                     const Call& call, uint8_t device, uint64_t start_ns,
                     std::span<const uint64_t> ends_ns) {
  for (size_t i = 0; i < names.size(); ++i) {
    Event event = launch_event(trace, program, i, names[i], call, device);
    event.start_ns = i == 0 ? start_ns : ends_ns[i - 1];
    event.end_ns = ends_ns[i];
    trace.push(event);
  }
}

}  // namespace tyto
