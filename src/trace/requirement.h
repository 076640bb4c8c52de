// --require DEVICE[:phase]: the device that must have done the work, or nothing counts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trace/trace.h"

namespace tyto {

enum class Phase : uint8_t { prefill, decode };
std::string_view name(Phase phase);

struct Requirement {
  std::string device;          // empty: nothing is required
  std::optional<Phase> phase;  // none: every phase that ran
  bool empty() const { return device.empty(); }
};

// "npu", "npu:decode"; another phase is a usage Error.
Requirement parse_requirement(const std::string& text);
std::string to_text(const Requirement& requirement);

struct PhaseCounters {  // devices that were submitted to, in each phase
  std::vector<DeviceCounters> prefill;
  std::vector<DeviceCounters> decode;
};

// Throws a require Error unless, in each phase concerned, the device is real, completed everything
// that was submitted to it, and did most of the arithmetic. A named phase that did not run fails.
void check_requirement(const Requirement& requirement, const PhaseCounters& executed);

}  // namespace tyto
