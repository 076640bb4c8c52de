#include "doctor/doctor_facts.h"

#include <algorithm>
#include <charconv>
#include <sstream>

#include "base/file.h"
#include "base/system_library.h"
#include "doctor/doctor_nodes.h"
#include "doctor/doctor_services.h"
#include "power/power.h"
#include "power/power_sysfs.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  return read_system_text(path).text;
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// "MemTotal:       24564712 kB" -> what stands after the colon.
std::string field_of(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string key = line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1);
    if (key != name) continue;
    const size_t value = line.find_first_not_of(" \t", colon + 1);
    return value == std::string::npos ? "" : line.substr(value);
  }
  return "";
}

uint64_t number_of(const std::string& text, int base = 10) {
  uint64_t value = 0;
  const size_t start = base == 16 && text.starts_with("0x") ? 2 : 0;
  std::from_chars(text.data() + std::min(start, text.size()), text.data() + text.size(), value,
                  base);
  return value;
}

CpuFacts read_cpu(const fs::path& root) {
  const std::string info = text_of(root / "proc/cpuinfo");
  CpuFacts cpu;
  cpu.model = field_of(info, "model name");
  cpu.flags = words_of(field_of(info, "flags"));
  std::istringstream lines(info);
  for (std::string line; std::getline(lines, line);) cpu.threads += line.starts_with("processor");
  return cpu;
}

// "Max locked memory         8388608              unlimited            bytes"
void read_memlock(const fs::path& root, MemoryFacts& memory) {
  constexpr std::string_view kLine = "Max locked memory";
  std::istringstream lines(text_of(root / "proc/self/limits"));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(kLine)) continue;
    const auto words = words_of(line.substr(kLine.size()));
    if (words.empty()) continue;
    memory.memlock_known = true;
    if (words[0] != "unlimited") memory.memlock_bytes = number_of(words[0]);
  }
}

MemoryFacts read_memory(const fs::path& root) {
  constexpr uint64_t kIpcLock = uint64_t{1} << 14;
  const std::string info = text_of(root / "proc/meminfo");
  MemoryFacts memory;
  memory.total_bytes = number_of(field_of(info, "MemTotal")) << 10;
  memory.available_bytes = number_of(field_of(info, "MemAvailable")) << 10;
  read_memlock(root, memory);
  const std::string capabilities = field_of(text_of(root / "proc/self/status"), "CapEff");
  memory.may_lock_anything = (number_of(capabilities, 16) & kIpcLock) != 0;
  return memory;
}

// Files may be packed (.xz, .zst) and carry a version after the name.
std::vector<std::string> read_firmware(const fs::path& root) {
  std::vector<std::string> files;
  for (const char* base : {"lib/firmware/updates", "lib/firmware", "usr/lib/firmware"})
    for (const std::string& chip : names_in(root / base / "amdnpu"))
      for (const std::string& file : names_in(root / base / "amdnpu" / chip)) {
        const std::string found = "amdnpu/" + chip + "/" + file;
        if (file.find(".sbin") != std::string::npos &&
            std::find(files.begin(), files.end(), found) == files.end())
          files.push_back(found);
      }
  return files;
}

// XRT looks for its plug-ins beside itself, and nowhere else.
std::string read_xrt_plugin(const fs::path& root, const DriverStack& stack) {
  if (stack.xrt_library.empty()) return "";
  const std::string folder = fs::path(stack.xrt_library).parent_path().string();
  return find_library(root, {folder}, "libxrt_driver_xdna.so.2");
}

PlatformFacts read_platform(const fs::path& root) {
  PlatformFacts platform;
  platform.profile = text_of(root / "sys/firmware/acpi/platform_profile");
  platform.choices = words_of(text_of(root / "sys/firmware/acpi/platform_profile_choices"));
  const fs::path supplies = root / "sys/class/power_supply";
  for (const std::string& name : names_in(supplies)) {
    if (text_of(supplies / name / "type") != "Mains") continue;
    const bool online = text_of(supplies / name / "online") == "1";
    platform.on_mains = platform.on_mains.value_or(false) || online;
  }
  return platform;
}

VulkanFacts read_vulkan(const fs::path& root) {
  VulkanFacts vulkan;
  vulkan.loader = find_library(root, library_folders(), "libvulkan.so.1");
  for (const char* folder :
       {"etc/vulkan/icd.d", "usr/local/share/vulkan/icd.d", "usr/share/vulkan/icd.d"})
    for (const std::string& name : names_in(root / folder))
      if (name.ends_with(".json")) vulkan.drivers.push_back("/" + std::string(folder) + "/" + name);
  for (const std::string& name : names_in(root / "dev/dri"))
    if (name.starts_with("renderD")) vulkan.render_nodes.push_back("/dev/dri/" + name);
  return vulkan;
}

std::vector<EnergyRailFacts> read_rails(const fs::path& root) {
  PowerSources sources;
  sources.root = root;
  if (root != "/") sources.nvml.clear();  // a library of this machine
  std::vector<EnergyRailFacts> rails;
  for (const RailReader& reader : power_rails(sources))
    rails.push_back({reader.rail.label(), reader.unavailable});
  return rails;
}

}  // namespace

SystemFacts read_system_facts(const fs::path& root) {
  SystemFacts facts;
  facts.cpu = read_cpu(root);
  facts.memory = read_memory(root);
  facts.stack = read_driver_stack(root);
  facts.npus = read_pci_npus(root);
  facts.firmware_files = read_firmware(root);
  const Identity identity = read_identity(root);
  facts.groups = identity.groups;
  facts.is_root = identity.is_root;
  facts.nodes = read_accel_nodes(root, identity);
  facts.holders = read_holders(root, facts.nodes);
  facts.xrt_plugin = read_xrt_plugin(root, facts.stack);
  facts.services = read_services(root);
  facts.platform = read_platform(root);
  facts.vulkan = read_vulkan(root);
  facts.rails = read_rails(root);
  return facts;
}

}  // namespace tyto
