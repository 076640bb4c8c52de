// The device nodes of accelerators, who may open them, and who has.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "doctor/doctor_facts.h"

namespace tyto {

struct Identity {
  bool is_root = false;
  std::vector<std::string> groups;              // names, or numbers where they have none
  std::map<unsigned, std::string> group_names;  // of the machine
  std::map<unsigned, std::string> user_names;
};

Identity read_identity(const std::filesystem::path& root);

// Opens every /dev/accel/accel* to see whether it may; a node that may not is still a node.
std::vector<AccelNode> read_accel_nodes(const std::filesystem::path& root,
                                        const Identity& identity);

// The processes that have a node of an NPU open, as far as this one may see.
HolderFacts read_holders(const std::filesystem::path& root, const std::vector<AccelNode>& nodes);

}  // namespace tyto
