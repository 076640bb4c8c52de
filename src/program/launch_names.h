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

// One launch, without its times.
Event launch_event(Trace& trace, const Program& program, size_t index, uint16_t name,
                   const Call& call, uint8_t device);

}  // namespace tyto
