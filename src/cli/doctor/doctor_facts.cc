#include "cli/doctor/doctor_facts.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>

#include "base/file.h"
#include "cli/doctor/doctor_nodes.h"
#include "trace/power.h"
#include "trace/power_sysfs.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  return read_system_text(path).text;
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
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

// amdxdna is the driver in the kernel since 6.14 and the newer one outside it; amdxdna_legacy the
// older one outside it.
constexpr std::array<const char*, 2> kModules = {"amdxdna", "amdxdna_legacy"};

KernelFacts read_kernel(const fs::path& root) {
  KernelFacts kernel;
  kernel.release = text_of(root / "proc/sys/kernel/osrelease");
  for (const char* module : kModules) {
    if (!kernel.module.empty() || !is_there(root / "sys/module" / module)) continue;
    kernel.module = module;
    kernel.module_version = text_of(root / "sys/module" / module / "version");
  }
  const fs::path modules = root / "lib/modules" / kernel.release;
  for (const char* folder :
       {"kernel/drivers/accel/amdxdna", "updates/dkms", "extra", "updates", "misc"})
    for (const std::string& name : names_in(modules / folder))
      kernel.module_installed |= name.starts_with("amdxdna");
  constexpr size_t kIndexLimit = 16 << 20;
  for (const char* index : {"modules.builtin", "modules.dep"})
    kernel.module_installed |=
        read_system_text(modules / index, kIndexLimit).text.find("/amdxdna") != std::string::npos;
  return kernel;
}

std::vector<NpuFacts> read_npus(const fs::path& root) {
  constexpr uint64_t kAmd = 0x1022;
  constexpr uint64_t kSignalProcessing = 0x1180;  // class code of the NPUs
  const fs::path devices = root / "sys/bus/pci/devices";
  std::vector<NpuFacts> npus;
  for (const std::string& address : names_in(devices)) {
    const fs::path folder = devices / address;
    if (number_of(text_of(folder / "vendor"), 16) != kAmd) continue;
    const auto id = static_cast<uint16_t>(number_of(text_of(folder / "device"), 16));
    const bool is_npu_class = number_of(text_of(folder / "class"), 16) >> 8 == kSignalProcessing;
    const bool known = id == 0x1502 || id == 0x17f0;
    const bool newer = is_npu_class && ((id & 0xfff0) == 0x17f0 || (id & 0xfff0) == 0x1b00);
    if (!known && !newer) continue;
    NpuFacts npu;
    npu.address = address;
    npu.device = id;
    npu.revision = static_cast<uint8_t>(number_of(text_of(folder / "revision"), 16));
    std::error_code error;
    const fs::path driver = fs::read_symlink(folder / "driver", error);
    if (!error) npu.driver = driver.filename().string();
    npu.name = text_of(folder / "vbnv");
    npu.firmware_version = text_of(folder / "fw_version");
    npus.push_back(npu);
  }
  return npus;
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

// The first folder that has the file, as a path of the machine, without `root`.
std::string find_library(const fs::path& root, const std::vector<std::string>& folders,
                         const std::string& name) {
  for (const std::string& folder : folders)
    if (is_there(root / folder.substr(1) / name)) return folder + "/" + name;
  return "";
}

const std::vector<std::string>& library_folders() {
  static const std::vector<std::string> folders = {
      "/opt/xilinx/xrt/lib",  "/opt/xilinx/xrt/lib64",
      "/usr/local/lib",       "/usr/lib/x86_64-linux-gnu",
      "/usr/lib64",           "/usr/lib",
      "/lib/x86_64-linux-gnu"};
  return folders;
}

XrtFacts read_xrt(const fs::path& root) {
  constexpr std::string_view kLibrary = "libxrt_coreutil.so.2";
  XrtFacts xrt;
  xrt.searched = library_folders();
  xrt.library = find_library(root, xrt.searched, std::string(kLibrary));
  if (xrt.library.empty()) return xrt;
  const fs::path folder = fs::path(xrt.library).parent_path();
  for (const std::string& name : names_in(root / folder.relative_path()))
    if (name.starts_with(std::string(kLibrary) + "."))
      xrt.version = name.substr(kLibrary.size() - 1);  // "2.26.0"
  xrt.plugin = find_library(root, {folder.string()}, "libxrt_driver_xdna.so.2");
  return xrt;
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
  facts.kernel = read_kernel(root);
  facts.npus = read_npus(root);
  facts.firmware_files = read_firmware(root);
  const Identity identity = read_identity(root);
  facts.groups = identity.groups;
  facts.is_root = identity.is_root;
  facts.nodes = read_accel_nodes(root, identity);
  facts.xrt = read_xrt(root);
  facts.platform = read_platform(root);
  facts.vulkan = read_vulkan(root);
  facts.rails = read_rails(root);
  return facts;
}

}  // namespace tyto
