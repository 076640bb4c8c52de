#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "doctor/facts.h"

namespace tyto {

// What the facts mean: a verdict for each, and the one thing to do about it. Pure functions.

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

// The device nodes of accelerators, who may open them, and who has.

struct Identity {
  bool is_root = false;
  std::vector<std::string> groups;              // names, or numbers where they have none
  std::map<unsigned, std::string> group_names;  // from the machine's list of groups
  std::map<unsigned, std::string> user_names;
};

Identity read_identity(const std::filesystem::path& root);

// Opens every /dev/accel/accel* to see whether it may; a node that may not is still a node.
std::vector<AccelNode> read_accel_nodes(const std::filesystem::path& root,
                                        const Identity& identity);

// The processes that have a node of an NPU open, as far as this one may see.
HolderFacts read_holders(const std::filesystem::path& root, const std::vector<AccelNode>& nodes);

}  // namespace tyto
