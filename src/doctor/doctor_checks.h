// What the facts mean: a verdict for each, and the one thing to do about it. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "doctor/doctor_facts.h"

namespace tyto {

enum class CheckState : uint8_t {
  ok,
  skipped,  // does not apply, or hangs on a check above that is not ok
  warn,     // works, but less well than it could
  fail,     // something that is there cannot be used
};
std::string_view to_string(CheckState state);

struct Check {
  std::string name;
  CheckState state = CheckState::ok;
  std::string detail;  // what was found
  std::string fix;     // one line; for warn and fail
};

// From the processor down to a dispatch on each device; what a check needs comes before it, so the
// first failure is the one to repair first.
std::vector<Check> examine(const SystemFacts& facts);

CheckState worst(const std::vector<Check>& checks);
const Check* first_to_repair(const std::vector<Check>& checks);  // null: nothing is

// The NPU's part of examine().
std::vector<Check> examine_npu(const SystemFacts& facts);

enum class NpuGeneration : uint8_t { xdna1, xdna2, unknown };
NpuGeneration generation_of(const PciNpu& npu);
std::string product_of(const PciNpu& npu);  // "Strix Point (XDNA2)"

// The NPU that Tyto could use, or null.
const PciNpu* usable_npu(const SystemFacts& facts);

}  // namespace tyto
