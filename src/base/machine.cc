#include "base/machine.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <thread>

#include "base/file.h"

namespace tyto {
namespace {

std::string read_processor_name() {
  std::istringstream lines(read_system_text("/proc/cpuinfo").text);
  for (std::string line; std::getline(lines, line);)
    if (const size_t colon = line.find(": ");
        line.starts_with("model name") && colon != std::string::npos)
      return line.substr(colon + 2);
  return "";
}

uint64_t system_number(int name) {
  return static_cast<uint64_t>(std::max(0L, ::sysconf(name)));
}

}  // namespace

const std::string& processor_name() {
  static const std::string name = read_processor_name();
  return name;
}

MachineFacts machine_facts() {
  MachineFacts facts{.cpu = processor_name(),
                     .cpu_threads = std::thread::hardware_concurrency(),
                     .memory_bytes = system_number(_SC_PHYS_PAGES) * system_number(_SC_PAGESIZE),
                     .kernel = ""};
  utsname system = {};
  if (::uname(&system) == 0) facts.kernel = fmt::format("{} {}", system.sysname, system.release);
  return facts;
}

}  // namespace tyto
