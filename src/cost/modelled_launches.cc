#include "cost/modelled_launches.h"

#include "cost/cost_model.h"
#include "program/launch_names.h"

namespace tyto {

void record_modelled_launches(Trace& trace, const Program& program, std::span<const uint16_t> names,
                              const Call& call, uint8_t device, uint64_t total_ns) {
  const ElfLaw& law = cost_parameters().elf;
  const auto weight_ms = [&](const Launch& launch) {
    return launch_ms(program, launch, call) + law.launch_us / 1e3;
  };
  double sum_ms = law.call_us / 1e3;
  for (const Launch& launch : program.launches) sum_ms += weight_ms(launch);
  const double scale = static_cast<double>(total_ns) / sum_ms;
  double at = law.call_us / 1e3 * scale;
  for (size_t i = 0; i < names.size(); ++i) {
    Event event = launch_event(trace, program, {i, 1}, names[i], call, device);
    event.start_ns = static_cast<uint64_t>(at);
    at += weight_ms(program.launches[i]) * scale;
    event.end_ns = static_cast<uint64_t>(at);
    event.modelled_ns = event.end_ns - event.start_ns;
    trace.push(event);
  }
}

}  // namespace tyto
