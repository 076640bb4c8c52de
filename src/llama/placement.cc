#include "llama/placement.h"

#include <algorithm>

#include "base/error.h"
#include "program/kernels.h"

namespace tyto {
namespace {

bool rotates_halves(const Device& device) {
  return fixed_shapes(device.info()).rotates_halves;
}

}  // namespace

DeviceOrder::DeviceOrder(std::span<Device* const> devices)
    : all(devices.begin(), devices.end()), first(devices.front()->info()) {
  for (const Device* device : all)
    if (device->info().shares_host_memory) hosts_.insert(device);
}

Device* DeviceOrder::host() const {
  const auto found = std::ranges::find_if(all, [&](const Device* each) { return is_host(each); });
  return found == all.end() ? nullptr : *found;
}

std::vector<uint8_t> place(const Program& program, std::span<Device* const> devices, Trace& trace) {
  std::vector<uint8_t> placement;
  for (const Launch& launch : program.launches) {
    size_t chosen = devices.size();
    std::string last_reason;
    for (size_t d = 0; d < devices.size() && chosen == devices.size(); ++d) {
      const auto refusal = devices[d]->why_not(program, launch);
      if (!refusal) {
        chosen = d;
        continue;
      }
      last_reason = fmt::format("{} not on {}: {}", spec(launch.kernel).name,
                                devices[d]->info().name, refusal->reason);
      if (refusal->left_to_host.empty())
        trace.fallback(last_reason);
      else
        trace.leave_to_host(refusal->left_to_host);
    }
    if (chosen == devices.size())
      throw Error(ErrorCode::unsupported, launch.name, "no device can run it", last_reason);
    placement.push_back(static_cast<uint8_t>(chosen));
  }
  return placement;
}

std::optional<std::string> why_mostly_not(const Program& program, const Device& device) {
  std::optional<std::string> first;
  size_t products = 0, refused = 0;
  for (const Launch& launch : program.launches) {
    if (launch.kernel != Kernel::matmul) continue;
    ++products;
    const auto refusal = device.why_not(program, launch);
    if (!refusal) continue;
    ++refused;
    if (!first) first = refusal->reason;
  }
  return 2 * refused > products ? first : std::nullopt;
}

Device* rotating_device(const Program& program, std::span<const uint8_t> placement,
                        std::span<Device* const> devices, Device* before) {
  Device* rotating = before;
  for (size_t i = 0; i < placement.size(); ++i) {
    const Launch& launch = program.launches[i];
    if (launch.kernel != Kernel::rope || !launch.shape.rope_pairs) continue;
    Device* device = devices[placement[i]];
    if (rotating != nullptr && rotates_halves(*rotating) != rotates_halves(*device))
      throw Error(ErrorCode::unsupported, launch.name,
                  fmt::format("{} and {} would rotate it, each in its own order",
                              rotating->info().name, device->info().name),
                  "use the model's safetensors files, or --device cpu");
    rotating = device;
  }
  return rotating;
}

}  // namespace tyto
