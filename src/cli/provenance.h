// Where a result comes from.
#pragma once

#include <cstdint>
#include <string>

#include "shell/command_line.h"
#include "trace/receipt.h"

namespace tyto {

class Engine;

// Keeps the command line for receipts, without secrets, and overwrites them in `argv`, where others
// see them (/proc/PID/cmdline). `path` has been parsed from it. To be called before there are
// threads.
void record_command_line(const CommandPath& path, int argc, char** argv);
std::string command_line();  // that was recorded, as a shell takes it

// Hashes the model, unless that was done before.
ReceiptContext receipt_context(Engine& engine);

// What was built: the commit ("1a2b3c4d", with "-dirty" where files differ from it) and how many
// came before it. Empty and 0 where the source was no git tree.
struct BuildFacts {
  std::string commit;
  uint64_t number = 0;
  std::string compiler = {};    // "GNU 12.2.0"
  std::string build_type = {};  // "Release"; empty: none of CMake's
  std::string instruction_sets = {};
  std::string xrt = {};  // what CMake found, or where it looked
  std::string libraries = {};
};
BuildFacts build_facts();  // written by write_build_facts.cmake

// What --version prints. Looks at the processor and opens nothing.
std::string version_text();

}  // namespace tyto
