// The launches inside a virtual device's dispatch, in a recording.
#pragma once

#include <cstdint>
#include <span>

#include "program/program.h"
#include "trace/trace.h"

namespace tyto {

// A dispatch is modelled as one: its `total_ns` is shared out in proportion to what the cost model
// says of each launch, and what it says of the call itself is left. Times are relative to the begin
// of the dispatch. `names` as launch_names() gives them.
void record_modelled_launches(Trace& trace, const Program& program, std::span<const uint16_t> names,
                              const Call& call, uint8_t device, uint64_t total_ns);

}  // namespace tyto
