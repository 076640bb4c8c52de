// What the launches of a program are called in a recording.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "program/program.h"
#include "trace/trace.h"

namespace tyto {

// [program.launches]. For set-up: it may allocate.
std::vector<uint16_t> launch_names(Trace& trace, const Program& program);

// The launches of a dispatch that just completed, one after the other: launch i ended at
// `ends_ns[i]`, the first began with the dispatch, at `start_ns`.
void record_launches(Trace& trace, const Program& program, std::span<const uint16_t> names,
                     const Call& call, uint8_t device, uint64_t start_ns,
                     std::span<const uint64_t> ends_ns);

// The same for a virtual device, whose dispatch is modelled as one: its `total_ns` is shared out in
// proportion to what the cost model says of each launch, and what it says of the call itself is
// left. Times are relative to the begin of the dispatch.
void record_modelled_launches(Trace& trace, const Program& program, std::span<const uint16_t> names,
                              const Call& call, uint8_t device, uint64_t total_ns);

}  // namespace tyto
