// Which device runs what: each launch of a program goes to the first device that can run it.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"
#include "program/stitch.h"
#include "trace/trace.h"

namespace tyto {

// The devices of a forward pass in order of preference.
struct DeviceOrder {
  explicit DeviceOrder(std::span<Device* const> devices);

  std::vector<Device*> all;
  DeviceInfo first;  // what all.front() says of itself

  // Whether it computes in the host's memory.
  bool is_host(const Device* device) const { return hosts_.contains(device); }
  bool are_hosts() const { return hosts_.size() == all.size(); }
  Device* host() const;  // the first such device; null: there is none

 private:
  std::set<const Device*> hosts_;
};

// [program.launches], as indices of `devices`, which are in order of preference. What a device
// refused is a fallback, unless its design leaves it to the host; a launch that no device can run
// is an Error.
std::vector<uint8_t> place(const Program& program, std::span<Device* const> devices, Trace& trace);

// Why the device would leave most of a program's products to others: what it says of the first of
// them. Nothing where it takes at least half of them.
std::optional<std::string> why_mostly_not(const Program& program, const Device& device);

// A device that rotates heads whose rows a checkpoint keeps in pairs; none: nothing is rotated so.
// An NPU's projections leave such rows in halves (FixedShapes::rotates_halves). Scores do not care
// as long as every position went the same way, so two devices that go different ways are an Error.
Device* rotating_device(const Program& program, std::span<const uint8_t> placement,
                        std::span<Device* const> devices, Device* before);

}  // namespace tyto
