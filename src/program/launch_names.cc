#include "program/launch_names.h"

#include <algorithm>

#include "program/kernels.h"

namespace tyto {
namespace {

std::string label_of(const Launch& launch) {
  return launch.role == Role::none ? launch.name : std::string(name(launch.role));
}

}  // namespace

std::vector<LaunchGroup> groups_of_one(const Program& program) {
  std::vector<LaunchGroup> groups;
  for (size_t i = 0; i < program.launches.size(); ++i) groups.push_back({i, 1});
  return groups;
}

std::vector<uint16_t> launch_names(Trace& trace, const Program& program,
                                   std::span<const LaunchGroup> groups) {
  std::vector<uint16_t> result;
  for (const LaunchGroup& group : groups) {
    const Launch& first = program.launches[group.first];
    std::string label = label_of(first);
    for (size_t i = 1; i < group.count; ++i)
      label += "+" + label_of(program.launches[group.first + i]);
    result.push_back(
        trace.name({.label = label,
                    .layer = first.layer,
                    .block = first.block == Block::none ? "" : std::string(name(first.block)),
                    .op = operator_of(first)}));
  }
  return result;
}

EventName dispatch_name(const Program& program) {
  const Launch& first = program.launches.front();
  if (!program.dispatch.empty()) return {.label = program.dispatch, .layer = first.layer};
  if (program.launches.size() == 1) return {.label = label_of(first), .layer = first.layer};
  const bool is_block =
      std::all_of(program.launches.begin(), program.launches.end(), [&](const Launch& launch) {
        return launch.block == first.block && launch.layer == first.layer;
      });
  if (is_block && first.block != Block::none)
    return {.label = std::string(name(first.block)), .layer = first.layer};
  return {.label = program.name};
}

Event launch_event(Trace& trace, const Program& program, const LaunchGroup& group, uint16_t name,
                   const Call& call, uint8_t device) {
  Cost declared;
  for (size_t i = group.first; i < group.first + group.count; ++i)
    declared += cost(program, program.launches[i], call);
  return {.bytes = declared.bytes,
          .flops = declared.flops,
          .dispatch = trace.dispatch(),
          .token = trace.token(),
          .position = call.segments().front().position,
          .rows = call.rows,
          .name = name,
          .launches = static_cast<uint16_t>(group.count),
          .device = device,
          .kind = EventKind::launch};
}

void record_launches(Trace& trace, const Program& program, std::span<const LaunchGroup> groups,
                     std::span<const uint16_t> names, const Call& call, uint8_t device,
                     uint64_t start_ns, std::span<const uint64_t> ends_ns,
                     std::span<const uint64_t> unread_bytes) {
  for (size_t i = 0; i < names.size(); ++i) {
    Event event = launch_event(trace, program, groups[i], names[i], call, device);
    event.start_ns = i == 0 ? start_ns : ends_ns[i - 1];
    event.end_ns = ends_ns[i];
    if (!unread_bytes.empty()) event.bytes -= unread_bytes[i];
    trace.push(event);
  }
}

}  // namespace tyto
