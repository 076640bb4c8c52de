// What programs and their launches are called in a recording.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "program/program.h"
#include "trace/trace.h"

namespace tyto {

// Neighbouring launches that a device runs as one.
struct LaunchGroup {
  size_t first = 0;
  size_t count = 1;
};
std::vector<LaunchGroup> groups_of_one(const Program& program);

// [groups]; one of several launches is named after all of them, "q+k+v", and counts as the operator
// of the first. For set-up: it may allocate.
std::vector<uint16_t> launch_names(Trace& trace, const Program& program,
                                   std::span<const LaunchGroup> groups);

// Of a dispatch that runs all of `program`: its only launch, its block, or the program's own name.
EventName dispatch_name(const Program& program);

// The groups of a dispatch that just completed, one after the other: group i ended at `ends_ns[i]`,
// the first began at `start_ns`. `unread_bytes`: of what its cost declares, none where not given.
void record_launches(Trace& trace, const Program& program, std::span<const LaunchGroup> groups,
                     std::span<const uint16_t> names, const Call& call, uint8_t device,
                     uint64_t start_ns, std::span<const uint64_t> ends_ns,
                     std::span<const uint64_t> unread_bytes = {});

// One group, without its times.
Event launch_event(Trace& trace, const Program& program, const LaunchGroup& group, uint16_t name,
                   const Call& call, uint8_t device);

}  // namespace tyto
