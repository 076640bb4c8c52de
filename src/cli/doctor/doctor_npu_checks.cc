// From the kernel to XRT: what an XDNA2 NPU needs before a program can be dispatched to it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "cli/doctor/doctor_checks.h"
#include "cli/terminal.h"

namespace tyto {
namespace {

// What the bf16 programs of a model with a billion parameters keep locked (`tyto plan` has it per
// model), and what the driver locks before anything else: the heap for instructions.
constexpr uint64_t kPinnedBy1bBf16 = (uint64_t{52} << 30) / 10;
constexpr uint64_t kDeviceHeap = uint64_t{64} << 20;

constexpr const char* kLimitsFile = "/etc/security/limits.d/99-amdxdna.conf";

struct Version {
  unsigned major = 0, minor = 0;
  auto operator<=>(const Version&) const = default;
};

// "6.14.0-27-generic" -> 6.14; 0.0 when it is no version.
Version version_of(const std::string& text) {
  Version version;
  const char* end = text.data() + text.size();
  const auto major = std::from_chars(text.data(), end, version.major);
  if (major.ec != std::errc() || major.ptr == end || *major.ptr != '.') return {};
  if (std::from_chars(major.ptr + 1, end, version.minor).ec != std::errc()) return {};
  return version;
}

Check skipped(const char* name, const char* why) {
  return {name, CheckState::skipped, why, ""};
}

Check kernel(const SystemFacts& facts) {
  const std::string& release = facts.kernel.release;
  const Version version = version_of(release);
  const bool needs_driver = usable_npu(facts) != nullptr && facts.kernel.module.empty();
  if (!needs_driver || version >= Version{6, 14})
    return {"kernel", CheckState::ok, "Linux " + release, ""};
  const char* fix =
      "install a kernel of 6.14 or newer, which brings amdxdna (Ubuntu 24.04: "
      "linux-generic-hwe-24.04)";
  if (version < Version{6, 10})
    return {"kernel", CheckState::fail,
            fmt::format("Linux {} is too old for any amdxdna driver", release), fix};
  return {"kernel", CheckState::warn,
          fmt::format("Linux {} brings no amdxdna driver of its own", release), fix};
}

Check npu(const SystemFacts& facts) {
  if (facts.npus.empty())
    return {"NPU", CheckState::warn, "none on the PCI bus; Tyto uses the CPU",
            "a Ryzen AI machine hides it when the BIOS set-up has the NPU (IPU) turned off"};
  const NpuFacts* usable = usable_npu(facts);
  const NpuFacts& shown = usable != nullptr ? *usable : facts.npus[0];
  const std::string detail =
      fmt::format("{} at {}, PCI 1022:{:04x} revision {:02x}", product_of(shown), shown.address,
                  shown.device, shown.revision);
  if (usable != nullptr) return {"NPU", CheckState::ok, detail, ""};
  if (generation_of(shown) == NpuGeneration::xdna1)
    return {"NPU", CheckState::warn, detail,
            "use --device cpu: programs for XDNA2 load here and compute nothing, without an error"};
  return {"NPU", CheckState::warn, detail,
          "use --device cpu: Tyto knows no programs for this generation"};
}

// Which folder of /lib/firmware/amdnpu the driver asks for.
std::vector<std::string> firmware_folders(const NpuFacts& npu) {
  const std::string own = fmt::format("{:04x}_{:02x}", npu.device, npu.revision);
  if (npu.device == 0x17f0 && npu.revision == 0x20) return {"17f0_10", own};
  return {own};
}

Check firmware(const SystemFacts& facts, const NpuFacts& npu) {
  if (!npu.firmware_version.empty())
    return {"firmware", CheckState::ok, npu.firmware_version + ", running", ""};
  const auto folders = firmware_folders(npu);
  for (const std::string& file : facts.firmware_files)
    for (const std::string& folder : folders)
      if (file.starts_with("amdnpu/" + folder + "/")) return {"firmware", CheckState::ok, file, ""};
  if (!npu.driver.empty())
    return {"firmware", CheckState::ok, "loaded; the driver does not say which", ""};
  return {"firmware", CheckState::fail, "no /lib/firmware/amdnpu/" + folders[0],
          "update your distribution's firmware package (linux-firmware), then reboot"};
}

Check driver(const SystemFacts& facts, const NpuFacts& npu) {
  const KernelFacts& kernel = facts.kernel;
  if (!npu.driver.empty())
    return {"driver", CheckState::ok,
            npu.driver + (kernel.module_version.empty() ? "" : " " + kernel.module_version), ""};
  if (!kernel.module.empty())
    return {
        "driver", CheckState::fail, kernel.module + " is loaded and did not take the NPU",
        "`sudo dmesg | grep amdxdna` says why; a firmware that does not fit the driver is usual"};
  if (kernel.module_installed)
    return {"driver", CheckState::fail, "amdxdna is installed and not loaded",
            "sudo modprobe amdxdna"};
  return {
      "driver", CheckState::fail, "no amdxdna module for this kernel",
      version_of(kernel.release) >= Version{6, 14}
          ? "install the rest of your kernel's modules (Ubuntu: linux-modules-extra-$(uname -r))"
          : "install a kernel of 6.14 or newer, or github.com/amd/xdna-driver"};
}

Check forbidden(const AccelNode& node, const SystemFacts& facts) {
  Check check{"device node", CheckState::fail,
              fmt::format("{} is there, but opening it is forbidden ({}:{}, mode {:04o})",
                          node.path, node.owner, node.group, node.mode),
              ""};
  const bool group_may = (node.mode & 0060) == 0060;
  const bool member =
      std::find(facts.groups.begin(), facts.groups.end(), node.group) != facts.groups.end();
  if (group_may && !member)
    check.fix = fmt::format("sudo usermod -aG {} $USER, then log in again", node.group);
  else if (group_may || facts.is_root)
    check.fix = "this user should be allowed to: in a container, pass --device /dev/accel";
  else
    check.fix =
        "sudo chgrp render /dev/accel/accel* && sudo chmod 660 /dev/accel/accel*, and a udev rule "
        "to keep it";
  return check;
}

Check device_node(const SystemFacts& facts) {
  std::vector<const AccelNode*> nodes;
  for (const AccelNode& node : facts.nodes)
    if (node.driver.empty() || node.driver.starts_with("amdxdna")) nodes.push_back(&node);
  if (nodes.empty())
    return {"device node", CheckState::fail,
            "the driver has the NPU, but there is no /dev/accel/accel*",
            "in a container, pass --device /dev/accel; else sudo modprobe -r amdxdna && sudo "
            "modprobe amdxdna"};
  for (const AccelNode* node : nodes)
    if (node->open_error == 0) return {"device node", CheckState::ok, node->path, ""};
  const AccelNode& first = *nodes[0];
  if (first.open_error == EACCES || first.open_error == EPERM) return forbidden(first, facts);
  return {"device node", CheckState::fail,
          fmt::format("{} cannot be opened: {}", first.path, std::strerror(first.open_error)),
          "`sudo dmesg | grep amdxdna` says what the driver thinks of it"};
}

Check memlock(const SystemFacts& facts) {
  const MemoryFacts& memory = facts.memory;
  if (!memory.memlock_known) return skipped("memlock", "this system does not say");
  if (!memory.memlock_bytes) return {"memlock", CheckState::ok, "unlimited", ""};
  const std::string limit = human_bytes(*memory.memlock_bytes);
  if (memory.may_lock_anything)
    return {"memlock", CheckState::ok, limit + ", and this process may exceed it", ""};
  if (*memory.memlock_bytes >= kPinnedBy1bBf16) return {"memlock", CheckState::ok, limit, ""};
  const std::string fix =
      fmt::format("echo '* - memlock unlimited' | sudo tee {}, then log in again", kLimitsFile);
  if (*memory.memlock_bytes < kDeviceHeap)
    return {"memlock", CheckState::fail,
            limit + "; opening the NPU alone locks 64 MiB, a 1B bf16 model 5.2 GiB", fix};
  return {"memlock", CheckState::warn, limit + "; a 1B bf16 model locks 5.2 GiB", fix};
}

Check xrt(const SystemFacts& facts) {
  constexpr Version kWithElf{2, 19};  // contexts made from an ELF
  const XrtFacts& xrt = facts.xrt;
  if (xrt.library.empty())
    return {"XRT", CheckState::fail, "no libxrt_coreutil.so.2 in /opt/xilinx/xrt/lib or /usr/lib",
            "install XRT and its NPU plug-in: your distribution's packages, or build "
            "github.com/amd/xdna-driver"};
  const std::string detail = fmt::format(
      "{} {}", xrt.version.empty() ? "of unknown version," : xrt.version + ",", xrt.library);
  if (xrt.version.empty() || version_of(xrt.version) >= kWithElf)
    return {"XRT", CheckState::ok, detail, ""};
  return {"XRT", CheckState::fail, detail,
          "install XRT 2.19 or newer: older ones load no ELF images"};
}

Check xrt_plugin(const SystemFacts& facts) {
  if (facts.xrt.library.empty()) return skipped("XRT plug-in", "needs XRT");
  if (!facts.xrt.plugin.empty()) return {"XRT plug-in", CheckState::ok, facts.xrt.plugin, ""};
  return {
      "XRT plug-in", CheckState::fail,
      "no libxrt_driver_xdna.so.2 beside XRT: it will find no device",
      "install the plug-in of the same XRT version (xrt_plugin, from github.com/amd/xdna-driver)"};
}

std::string power_mode_text(const SystemFacts& facts) {
  constexpr std::array<const char*, 5> kModes = {"default", "powersaver", "balanced", "performance",
                                                 "turbo"};
  for (const AccelNode& node : facts.nodes)
    if (node.power_mode && *node.power_mode < static_cast<int>(kModes.size()))
      return fmt::format(", NPU mode {}", kModes[static_cast<size_t>(*node.power_mode)]);
  return "";
}

Check power_profile(const SystemFacts& facts) {
  constexpr int kPowersaver = 1;
  constexpr std::array<std::string_view, 3> kSaving = {"low-power", "quiet", "cool"};
  const PlatformFacts& platform = facts.platform;
  std::string detail =
      platform.profile.empty() ? "no platform profile" : "platform " + platform.profile;
  detail += power_mode_text(facts);
  const bool on_battery = platform.on_mains && !*platform.on_mains;
  if (on_battery) detail += ", on battery";
  if (std::find(kSaving.begin(), kSaving.end(), platform.profile) != kSaving.end())
    return {"power profile", CheckState::warn, detail,
            "powerprofilesctl set performance (or echo performance | sudo tee "
            "/sys/firmware/acpi/platform_profile)"};
  for (const AccelNode& node : facts.nodes)
    if (node.power_mode == kPowersaver)
      return {"power profile", CheckState::warn, detail,
              fmt::format("sudo xrt-smi configure -d {} --pmode default", facts.npus[0].address)};
  if (on_battery)
    return {"power profile", CheckState::warn, detail, "plug it in before you measure"};
  if (platform.profile == "balanced" && usable_npu(facts) != nullptr)
    detail += "; performance made a published NPU decode 1.5 times as fast";
  const bool unknown = platform.profile.empty() && power_mode_text(facts).empty();
  return {"power profile", unknown ? CheckState::skipped : CheckState::ok, detail, ""};
}

}  // namespace

NpuGeneration generation_of(const NpuFacts& npu) {
  if (npu.device == 0x1502) return NpuGeneration::xdna1;
  return npu.device == 0x17f0 ? NpuGeneration::xdna2 : NpuGeneration::unknown;
}

std::string product_of(const NpuFacts& npu) {
  if (generation_of(npu) == NpuGeneration::xdna1) return "Phoenix or Hawk Point (XDNA1)";
  if (generation_of(npu) == NpuGeneration::unknown) return "an NPU newer than this Tyto";
  const char* product = npu.revision == 0x10   ? "Strix Point"
                        : npu.revision == 0x11 ? "Strix Halo"
                        : npu.revision == 0x20 ? "Krackan Point"
                                               : "an unlisted revision";
  return fmt::format("{} (XDNA2)", npu.name.empty() ? product : npu.name);
}

const NpuFacts* usable_npu(const SystemFacts& facts) {
  const auto found = std::find_if(
      facts.npus.begin(), facts.npus.end(),
      [](const NpuFacts& candidate) { return generation_of(candidate) == NpuGeneration::xdna2; });
  return found == facts.npus.end() ? nullptr : &*found;
}

std::vector<Check> examine_npu(const SystemFacts& facts) {
  std::vector<Check> checks = {kernel(facts), npu(facts)};
  const NpuFacts* usable = usable_npu(facts);
  if (usable == nullptr) {
    for (const char* name : {"firmware", "driver", "device node", "memlock", "XRT", "XRT plug-in"})
      checks.push_back(skipped(name, "no NPU that Tyto could use"));
    checks.push_back(power_profile(facts));
    return checks;
  }
  checks.push_back(firmware(facts, *usable));
  checks.push_back(driver(facts, *usable));
  checks.push_back(usable->driver.empty() ? skipped("device node", "needs the driver")
                                          : device_node(facts));
  checks.push_back(memlock(facts));
  checks.push_back(xrt(facts));
  checks.push_back(xrt_plugin(facts));
  checks.push_back(power_profile(facts));
  return checks;
}

}  // namespace tyto
