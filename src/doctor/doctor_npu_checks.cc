// From the kernel to XRT: what an XDNA2 NPU needs before a program can be dispatched to it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/human_bytes.h"
#include "base/joined.h"
#include "doctor/doctor_checks.h"

namespace tyto {
namespace {

// What the bf16 programs of a model with a billion parameters keep locked (`tyto plan` has it per
// model), and what the driver locks before anything else: the heap for instructions.
constexpr uint64_t kPinnedBy1bBf16 = (uint64_t{52} << 30) / 10;

constexpr const char* kLimitsFile = "/etc/security/limits.d/99-amdxdna.conf";

Check skipped(const char* name, const char* why) {
  return {name, CheckState::skipped, why, ""};
}

// A check that found something, unless that is older than the images need.
Check judged(Check check, const SystemFacts& facts) {
  for (const VersionFault& fault : version_faults(facts.stack)) {
    if (fault.what != check.name || check.state != CheckState::ok) continue;
    check.state = fault.is_certain ? CheckState::fail : CheckState::warn;
    check.detail += fmt::format("; {} for MLIR-AIR's ELF images, which need {}",
                                fault.is_certain ? "too old" : "perhaps too old", fault.needed);
    check.fix = fault.fix;
  }
  return check;
}

Check kernel(const SystemFacts& facts) {
  const std::string& release = facts.stack.kernel;
  const Version version = version_of(release);
  const bool has_npu = usable_npu(facts) != nullptr;
  const Check found{"kernel", CheckState::ok, "Linux " + release, ""};
  if (!has_npu) return found;
  if (!facts.stack.module.empty() || version >= Version{6, 14}) return judged(found, facts);
  const char* fix =
      "install Linux 7.0 or newer, whose amdxdna takes the images, or github.com/amd/xdna-driver";
  if (version < Version{6, 10})
    return {"kernel", CheckState::fail,
            fmt::format("Linux {} is too old for any amdxdna driver", release), fix};
  return {"kernel", CheckState::warn,
          fmt::format("Linux {} brings no amdxdna driver of its own", release), fix};
}

Check npu(const SystemFacts& facts) {
  if (facts.npus.empty())
    return {"NPU", CheckState::warn, "none on the PCI bus; Tyto uses the CPU",
            "if this is a Ryzen AI machine, enable the NPU (IPU) in the BIOS"};
  const PciNpu* usable = usable_npu(facts);
  const PciNpu& shown = usable != nullptr ? *usable : facts.npus[0];
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
std::vector<std::string> firmware_folders(const PciNpu& npu) {
  const std::string own = fmt::format("{:04x}_{:02x}", npu.device, npu.revision);
  if (npu.device == 0x17f0 && npu.revision == 0x20) return {"17f0_10", own};
  return {own};
}

Check firmware(const SystemFacts& facts, const PciNpu& npu) {
  if (!npu.firmware_version.empty())
    return judged({"firmware", CheckState::ok, npu.firmware_version + ", running", ""}, facts);
  const auto folders = firmware_folders(npu);
  for (const std::string& file : facts.firmware_files)
    for (const std::string& folder : folders)
      if (file.starts_with("amdnpu/" + folder + "/")) return {"firmware", CheckState::ok, file, ""};
  if (!npu.driver.empty())
    return {"firmware", CheckState::ok, "loaded; the driver does not say which", ""};
  return {"firmware", CheckState::fail, "no /lib/firmware/amdnpu/" + folders[0],
          "update your distribution's firmware package (linux-firmware), then reboot"};
}

Check driver(const SystemFacts& facts, const PciNpu& npu) {
  const DriverStack& stack = facts.stack;
  if (!npu.driver.empty()) {
    std::string detail = npu.driver;
    if (!stack.module_version.empty()) detail += " " + stack.module_version;
    if (stack.interface)
      detail += fmt::format(", interface {}.{}", stack.interface->major, stack.interface->minor);
    return judged({"driver", CheckState::ok, detail, ""}, facts);
  }
  if (!stack.module.empty())
    return {
        "driver", CheckState::fail, stack.module + " is loaded and did not take the NPU",
        "`sudo dmesg | grep amdxdna` says why; a firmware that does not fit the driver is usual"};
  if (stack.module_installed)
    return {"driver", CheckState::fail, "amdxdna is installed and not loaded",
            "sudo modprobe amdxdna"};
  return {
      "driver", CheckState::fail, "no amdxdna module for this kernel",
      version_of(stack.kernel) >= Version{6, 14}
          ? "install the rest of your kernel's modules (Ubuntu: linux-modules-extra-$(uname -r))"
          : "install Linux 7.0 or newer, or github.com/amd/xdna-driver"};
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
  std::string others;  // accel0 may well be somebody else's
  for (const AccelNode& node : facts.nodes)
    if (node.driver.empty() || node.driver.starts_with("amdxdna"))
      nodes.push_back(&node);
    else
      others += fmt::format("; {} is {}'s", node.path, node.driver);
  if (nodes.empty())
    return {"device node", CheckState::fail,
            "the driver has the NPU, but there is no /dev/accel/accel* of it" + others,
            "in a container, pass --device /dev/accel; else sudo modprobe -r amdxdna && sudo "
            "modprobe amdxdna"};
  for (const AccelNode* node : nodes)
    if (node->open_error == 0) return {"device node", CheckState::ok, node->path + others, ""};
  const AccelNode& first = *nodes[0];
  if (first.open_error == EACCES || first.open_error == EPERM) return forbidden(first, facts);
  return {"device node", CheckState::fail,
          fmt::format("{} cannot be opened: {}", first.path, std::strerror(first.open_error)),
          "`sudo dmesg | grep amdxdna` says what the driver thinks of it"};
}

std::string name_of(const NpuHolder& holder) {
  return fmt::format(
      "{} (process {}{})", holder.program, holder.pid,
      holder.heap_bytes ? ", " + human_bytes(*holder.heap_bytes) + " of the device heap" : "");
}

Check contexts(const SystemFacts& facts) {
  constexpr uint64_t kOfAModel = 6;  // one for each of MLIR-AIR's programs
  std::optional<ContextCount> count;
  for (const AccelNode& node : facts.nodes)
    if (node.contexts) count = node.contexts;
  const HolderFacts& who = facts.holders;
  std::string detail = count ? fmt::format("{} of {} taken", count->taken, count->most)
                             : std::string("the driver does not say how many are taken");
  detail += who.holders.empty() ? "; no process is seen to have the NPU open"
                                : "; open in " + joined(who.holders, ", ", name_of);
  if (who.unreadable > 0)
    detail += fmt::format("; {} processes of others may not be looked into", who.unreadable);
  if (!count || count->taken + kOfAModel <= count->most)
    return {"contexts", CheckState::ok, detail, ""};
  return {"contexts", CheckState::warn, fmt::format("{}; a bf16 model takes {}", detail, kOfAModel),
          who.holders.empty() ? "`sudo tyto doctor` names the processes that hold them"
                              : "end " + joined(who.holders, " or ", name_of)};
}

// The code of every image's run lies in it.
Check device_heap(const SystemFacts& facts) {
  const std::optional<bool> grows = heap_grows(facts.stack);
  const uint64_t most = grows.value_or(false) ? kGrownHeapBytes : kHeapBytes;
  std::string detail = human_bytes(kHeapBytes);
  if (!grows)
    detail += "; whether this driver lets it grow is not established";
  else if (*grows)
    detail += ", grows to 537 MB where the firmware speaks protocol 6.18";
  else
    detail += ", and this driver does not let it grow";
  const KernelCacheFacts& cache = facts.kernel_cache;
  if (cache.largest_model.empty()) return {"device heap", CheckState::ok, detail, ""};
  detail += fmt::format("; the images of {} take {}{}", cache.largest_model,
                        cache.heap.is_estimate ? "about " : "", human_bytes(cache.heap.bytes));
  if (cache.heap.bytes <= most) return {"device heap", CheckState::ok, detail, ""};
  return {"device heap", CheckState::warn, detail,
          "take a driver of April 2026 or newer (github.com/amd/xdna-driver), which lets it grow"};
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
  if (*memory.memlock_bytes < kHeapBytes)
    return {"memlock", CheckState::fail,
            limit + "; opening the NPU alone locks 67 MB, a 1B bf16 model 5.6 GB", fix};
  return {"memlock", CheckState::warn, limit + "; a 1B bf16 model locks 5.6 GB", fix};
}

std::string text_of(const MemlockSetting& setting) {
  return fmt::format("{} ({})", setting.bytes ? human_bytes(*setting.bytes) : "unlimited",
                     setting.file.empty() ? "systemd's own default" : setting.file);
}

Check services(const SystemFacts& facts) {
  const ServiceFacts& services = facts.services;
  const std::string defaults =
      fmt::format("services that set none get {}, those of users {}",
                  text_of(services.system_default), text_of(services.user_default));
  if (services.unit.empty())
    return {"memlock of services", CheckState::skipped,
            "no tyto.service is installed; deploy/tyto.service sets LimitMEMLOCK; " + defaults, ""};
  const MemlockSetting& limit = services.unit_limit;
  Check check{"memlock of services", CheckState::ok,
              fmt::format("{}: {}; {}", services.unit, text_of(limit), defaults), ""};
  if (!limit.bytes || *limit.bytes >= kPinnedBy1bBf16) return check;
  check.state = *limit.bytes < kHeapBytes ? CheckState::fail : CheckState::warn;
  check.fix = fmt::format(
      "sudo systemctl edit {}, add LimitMEMLOCK=infinity below [Service], then restart it",
      services.unit);
  return check;
}

Check this_build(const SystemFacts& facts) {
  if (!facts.build_has_xrt) return skipped("this build", "of another machine is not known");
  if (*facts.build_has_xrt) return {"this build", CheckState::ok, "has XRT", ""};
  return {
      "this build", CheckState::fail, "has no XRT, whatever is installed here",
      "install XRT 2.20.115 or newer with its headers, then build Tyto again; CMake says what it "
      "found"};
}

Check xrt(const SystemFacts& facts) {
  const DriverStack& stack = facts.stack;
  if (stack.xrt_library.empty())
    return {"XRT", CheckState::fail,
            "is not installed: no libxrt_coreutil.so.2 in /opt/xilinx/xrt/lib or /usr/lib",
            "install XRT and its NPU plug-in: your distribution's packages, or build "
            "github.com/amd/xdna-driver"};
  const std::string version = stack.xrt_version.empty() ? "of unknown version" : stack.xrt_version;
  return judged({"XRT", CheckState::ok, fmt::format("{}, {}", version, stack.xrt_library), ""},
                facts);
}

Check xrt_plugin(const SystemFacts& facts) {
  if (facts.stack.xrt_library.empty()) return skipped("XRT plug-in", "needs XRT");
  if (!facts.xrt_plugin.empty()) return {"XRT plug-in", CheckState::ok, facts.xrt_plugin, ""};
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

NpuGeneration generation_of(const PciNpu& npu) {
  if (npu.device == 0x1502) return NpuGeneration::xdna1;
  return npu.device == 0x17f0 ? NpuGeneration::xdna2 : NpuGeneration::unknown;
}

std::string product_of(const PciNpu& npu) {
  if (generation_of(npu) == NpuGeneration::xdna1) return "Phoenix or Hawk Point (XDNA1)";
  if (generation_of(npu) == NpuGeneration::unknown) return "an NPU newer than this Tyto";
  const char* product = npu.revision == 0x10   ? "Strix Point"
                        : npu.revision == 0x11 ? "Strix Halo"
                        : npu.revision == 0x20 ? "Krackan Point"
                                               : "an unlisted revision";
  return fmt::format("{} (XDNA2)", npu.name.empty() ? product : npu.name);
}

const PciNpu* usable_npu(const SystemFacts& facts) {
  const auto found = std::find_if(
      facts.npus.begin(), facts.npus.end(),
      [](const PciNpu& candidate) { return generation_of(candidate) == NpuGeneration::xdna2; });
  return found == facts.npus.end() ? nullptr : &*found;
}

std::vector<Check> examine_npu(const SystemFacts& facts) {
  std::vector<Check> checks = {kernel(facts), npu(facts)};
  const PciNpu* usable = usable_npu(facts);
  if (usable == nullptr) {
    for (const char* name : {"firmware", "driver", "device node", "contexts", "device heap",
                             "memlock", "memlock of services", "this build", "XRT", "XRT plug-in"})
      checks.push_back(skipped(name, "no NPU"));
    checks.push_back(power_profile(facts));
    return checks;
  }
  const bool has_driver = !usable->driver.empty();
  const auto with_driver = [&](const char* name, Check (*check)(const SystemFacts&)) {
    return has_driver ? check(facts) : skipped(name, "needs the driver");
  };
  checks.push_back(firmware(facts, *usable));
  checks.push_back(driver(facts, *usable));
  checks.push_back(with_driver("device node", device_node));
  checks.push_back(with_driver("contexts", contexts));
  checks.push_back(with_driver("device heap", device_heap));
  for (const auto check : {memlock, services, xrt, xrt_plugin, this_build, power_profile})
    checks.push_back(check(facts));
  return checks;
}

}  // namespace tyto
