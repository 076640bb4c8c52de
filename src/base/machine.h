// The machine that this program runs on, without names of people or machines.
#pragma once

#include <cstdint>
#include <string>

namespace tyto {

// As /proc/cpuinfo has it; empty: it does not say. Read once.
const std::string& processor_name();

struct MachineFacts {
  std::string cpu;
  unsigned cpu_threads = 0;
  uint64_t memory_bytes = 0;
  std::string kernel;  // "Linux 6.14.0"
};
MachineFacts machine_facts();

}  // namespace tyto
