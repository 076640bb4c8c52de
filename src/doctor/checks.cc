#include "doctor/checks.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <iterator>
#include <sstream>

#include <fmt/format.h>

#include "base/file.h"
#include "base/spelling.h"
#include "power/power.h"

namespace tyto {
namespace {

bool has(const std::vector<std::string>& list, std::string_view wanted) {
  return std::find(list.begin(), list.end(), wanted) != list.end();
}

Check processor(const SystemFacts& facts) {
  constexpr std::array<std::pair<const char*, const char*>, 4> kExtensions = {
      {{"avx2", "AVX2"}, {"avx512f", "AVX-512"}, {"avx512_vnni", "VNNI"}, {"avx512_bf16", "BF16"}}};
  const CpuFacts& cpu = facts.cpu;
  std::vector<std::string> present, absent;
  for (const auto& [flag, name] : kExtensions)
    (has(cpu.flags, flag) ? present : absent).push_back(name);
  if (has(cpu.flags, "avx_vnni") && !has(present, "VNNI")) present.push_back("VNNI");
  const std::string detail = fmt::format(
      "{}, {}; {}", cpu.model.empty() ? "unknown model" : cpu.model, counted(cpu.threads, "thread"),
      present.empty() ? "no vector extension Tyto uses" : joined(present));
  const bool fast = has(cpu.flags, "avx2") && has(cpu.flags, "fma") && has(cpu.flags, "f16c");
  if (fast) return {"processor", CheckState::ok, detail, ""};
  return {"processor", CheckState::warn, detail,
          "without AVX2, FMA and F16C the CPU is many times slower; in a virtual machine, pass the "
          "host's processor through"};
}

Check memory(const SystemFacts& facts) {
  constexpr uint64_t kLittle = uint64_t{2} << 30;
  const MemoryFacts& memory = facts.memory;
  const std::string detail = fmt::format("{}, {} available", human_bytes(memory.total_bytes),
                                         human_bytes(memory.available_bytes));
  if (memory.available_bytes >= kLittle) return {"memory", CheckState::ok, detail, ""};
  return {"memory", CheckState::warn, detail,
          "end other programs: weights that are paged out are read from disk for every token"};
}

Check energy(const SystemFacts& facts) {
  std::vector<std::string> readable, forbidden;
  for (const EnergyRailFacts& rail : facts.rails) {
    if (rail.reason.empty()) readable.push_back(rail.label);
    if (rail.reason.starts_with("permission denied")) forbidden.push_back(rail.label);
  }
  if (!forbidden.empty())
    return {"energy", CheckState::warn,
            fmt::format("{} may not be read{}", joined(forbidden),
                        readable.empty() ? "" : "; " + joined(readable) + " may"),
            "sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj (until the next boot)"};
  if (!readable.empty()) return {"energy", CheckState::ok, joined(readable), ""};
  return {"energy", CheckState::skipped, "no power rail here: --energy will say n/a", ""};
}

Check vulkan(const SystemFacts& facts) {
  const VulkanFacts& vulkan = facts.vulkan;
  const char* install = "install the loader and a driver (Debian: libvulkan1 mesa-vulkan-drivers)";
  const bool software_only = std::all_of(
      vulkan.devices.begin(), vulkan.devices.end(),
      [](const std::string& device) { return device.find("(software") != std::string::npos; });
  if (!vulkan.devices.empty() && software_only && !vulkan.render_nodes.empty())
    return {"Vulkan", CheckState::warn, "a GPU, but only " + joined(vulkan.devices), install};
  if (!vulkan.devices.empty()) return {"Vulkan", CheckState::ok, joined(vulkan.devices), ""};
  if (vulkan.render_nodes.empty())
    return {"Vulkan", CheckState::skipped, "no GPU: there is no /dev/dri/renderD*", ""};
  if (vulkan.loader.empty())
    return {"Vulkan", CheckState::warn, "a GPU, but no libvulkan.so.1", install};
  if (vulkan.drivers.empty())
    return {"Vulkan", CheckState::warn, "a loader, but no driver in /usr/share/vulkan/icd.d",
            install};
  if (!vulkan.enumerated)
    return {"Vulkan", CheckState::ok, counted(vulkan.drivers.size(), "driver") + ", not asked", ""};
  return {"Vulkan", CheckState::warn,
          vulkan.error.empty() ? "its drivers list no device" : vulkan.loader + ": " + vulkan.error,
          "`vulkaninfo --summary` says more; a GPU may also need the groups render and video"};
}

Check kernel_images(const SystemFacts& facts) {
  const KernelCacheFacts& cache = facts.kernel_cache;
  if (!cache.problems.empty())
    return {"kernel images", CheckState::fail,
            cache.problems.front() + (cache.problems.size() > 1
                                          ? fmt::format(" (and {} more)", cache.problems.size() - 1)
                                          : ""),
            "`tyto kernels check` shows all; import the build folder again, or `tyto kernels rm`"};
  if (cache.images > 0)
    return {"kernel images", CheckState::ok, fmt::format("{} in {}", cache.images, cache.folder),
            ""};
  if (usable_npu(facts) == nullptr)
    return {"kernel images", CheckState::skipped, "none, and no NPU to run them", ""};
  return {"kernel images", CheckState::warn, "none in " + cache.folder,
          "compile them with MLIR-AIR, then `tyto kernels import DIR` (docs/kernels.md)"};
}

Check model(const SystemFacts& facts) {
  const ModelFacts& model = facts.model;
  if (model.name.empty()) return {"model", CheckState::skipped, "none was named", ""};
  if (!model.error.empty())
    return {"model", model.named ? CheckState::fail : CheckState::warn, model.error,
            model.hint.empty() ? "give a GGUF file or a checkpoint folder with -m" : model.hint};
  const std::string detail =
      fmt::format("{}: {}, {}", model.name, model.format, human_bytes(model.weight_bytes));
  if (model.weight_bytes <= facts.memory.available_bytes)
    return {"model", CheckState::ok, detail, ""};
  return {"model", CheckState::warn,
          fmt::format("{}, more than the {} available", detail,
                      human_bytes(facts.memory.available_bytes)),
          "use a smaller quantisation: `tyto quantize --type q4_k_m`"};
}

std::vector<Check> calibration_checks(const SystemFacts& facts) {
  if (!facts.calibration) return {};
  const char* measure = "tyto bench --calibrate -m MODEL";
  const CalibrationFacts& calibration = *facts.calibration;
  if (!calibration.problem.empty())
    return {{"calibration", CheckState::warn, calibration.problem + ", so it is ignored", measure}};
  if (!calibration.measured.empty())
    return {{"calibration", CheckState::ok, calibration.measured, ""}};
  return {{"calibration", CheckState::skipped,
           fmt::format("--device auto goes by modelled speed until `{}`", measure), ""}};
}

// The row has the device's name already.
std::string without_name(const DeviceProbe& probe) {
  const std::string begins = probe.name + ": ";
  return probe.open_error.starts_with(begins) ? probe.open_error.substr(begins.size())
                                              : probe.open_error;
}

Check dispatch(const DeviceProbe& probe) {
  if (!probe.open_error.empty())
    return {probe.name, CheckState::skipped, "not usable: " + without_name(probe), ""};
  if (!probe.untried.empty())
    return {probe.name, CheckState::skipped, "opens, and was not tried out: " + probe.untried, ""};
  if (!probe.dispatch_error.empty())
    return {probe.name, CheckState::fail, probe.dispatch_error,
            "run with --device cpu until this is repaired"};
  const bool right = probe.worst_error <= probe.allowed_error;
  const std::string detail =
      fmt::format("computes {}: {} off by {:.1g}, {:.1g} allowed; {}", right ? "right" : "WRONG",
                  probe.computed, probe.worst_error, probe.allowed_error, probe.description);
  if (right) return {probe.name, CheckState::ok, detail, ""};
  return {probe.name, CheckState::fail, detail,
          fmt::format("do not use --device {}; update its driver and firmware, then try again",
                      probe.name)};
}

std::vector<Check> device_checks(const DeviceProbe& probe) {
  std::vector<Check> checks = {dispatch(probe)};
  if (checks[0].state != CheckState::ok || probe.gb_per_s <= 0) return checks;
  Check speed{probe.name + " speed", CheckState::ok,
              fmt::format("{}{:.1f} GB/s from memory", probe.is_virtual ? "modelled: " : "",
                          probe.gb_per_s),
              ""};
  if (probe.gb_per_s < probe.expected_least || probe.gb_per_s > probe.expected_most) {
    speed.state = CheckState::warn;
    speed.detail +=
        fmt::format(", expected {:.0f} to {:.0f}", probe.expected_least, probe.expected_most);
    speed.fix = probe.is_virtual ? "the cost model is off: please report it"
                                 : "see that nothing else runs and the power profile is not a "
                                   "saving one, then try again";
  }
  checks.push_back(speed);
  return checks;
}

}  // namespace

std::string_view to_string(CheckState state) {
  constexpr std::array<std::string_view, 4> kNames = {"ok", "skipped", "warn", "fail"};
  return kNames[static_cast<size_t>(state)];
}

std::vector<Check> examine(const SystemFacts& facts) {
  std::vector<Check> checks = {processor(facts), memory(facts)};
  const auto add = [&checks](std::vector<Check> more) {
    std::move(more.begin(), more.end(), std::back_inserter(checks));
  };
  add(examine_npu(facts));
  add({energy(facts), vulkan(facts), kernel_images(facts), model(facts)});
  for (const DeviceProbe& probe : facts.devices) add(device_checks(probe));
  add(calibration_checks(facts));
  return checks;
}

CheckState worst(const std::vector<Check>& checks) {
  CheckState state = CheckState::ok;
  for (const Check& check : checks)
    if (check.state != CheckState::skipped) state = std::max(state, check.state);
  return state;
}

const Check* first_to_repair(const std::vector<Check>& checks) {
  const CheckState state = worst(checks);
  if (state < CheckState::warn) return nullptr;
  const auto found = std::find_if(checks.begin(), checks.end(),
                                  [&](const Check& check) { return check.state == state; });
  return &*found;
}

// From the kernel to XRT: what an XDNA2 NPU needs before a program can be dispatched to it.

namespace {

// What the bf16 programs of a model with a billion parameters keep locked (`tyto plan` has it per
// model), and what the driver locks before anything else: the heap for instructions.
constexpr uint64_t kPinnedBy1bBf16 = (uint64_t{52} << 30) / 10;

constexpr const char* kLimitsFile = "/etc/security/limits.d/99-amdxdna.conf";

Check skipped(const char* name, const char* why) {
  return {name, CheckState::skipped, why, ""};
}

// A check that found something, unless that is older than ELF images need. It fails where there are
// such images; xclbins do without.
Check judged(Check check, const SystemFacts& facts) {
  const KernelCacheFacts& stored = facts.kernel_cache;
  for (const VersionFault& fault : version_faults(facts.stack)) {
    if (fault.what != check.name || check.state != CheckState::ok) continue;
    check.state = fault.is_certain && stored.elfs > 0 ? CheckState::fail : CheckState::warn;
    check.detail +=
        fmt::format("; {} for MLIR-AIR's ELF images (bf16, prompts of q4nx), which need {}",
                    fault.is_certain ? "too old" : "perhaps too old", fault.needed);
    if (stored.elfs == 0 && stored.xclbins > 0)
      check.detail += fmt::format("; the {} stored as xclbins (int8, decode of q4nx) need less",
                                  counted(stored.xclbins, "kernel"));
    else if (stored.elfs == 0)
      check.detail += "; xclbins (int8, decode of q4nx) need less";
    check.fix = fault.fix;
  }
  return check;
}

Check iommu(const SystemFacts& facts) {
  const IommuFacts& found = facts.iommu;
  constexpr const char* kNeed = "the driver gets no PASID and cannot open the NPU";
  if (!found.turned_off.empty())
    return {"IOMMU", CheckState::fail,
            fmt::format("is turned off by {} on the kernel's command line: {}", found.turned_off,
                        kNeed),
            fmt::format("take {} out of the boot loader's settings (Debian, Ubuntu: "
                        "/etc/default/grub, then sudo update-grub), then reboot",
                        found.turned_off)};
  if (!found.units) return skipped("IOMMU", "this system does not say");
  if (*found.units == 0)
    return {"IOMMU", CheckState::fail, fmt::format("there is none in /sys/class/iommu: {}", kNeed),
            "enable the IOMMU in the BIOS, then reboot"};
  return {"IOMMU", CheckState::ok, counted(*found.units, "unit"), ""};
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
  const auto others = std::count_if(facts.npus.begin(), facts.npus.end(), [](const PciNpu& other) {
    return generation_of(other) == NpuGeneration::xdna2;
  });
  if (usable != nullptr)
    return {"NPU", CheckState::ok,
            others > 1 ? fmt::format("{}, the first of {} (--npu-device)", detail, others) : detail,
            ""};
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
  std::string others;  // accel0 may well be another device's
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
  return choose_npu(facts.npus, "");
}

std::vector<Check> examine_npu(const SystemFacts& facts) {
  std::vector<Check> checks = {kernel(facts), npu(facts)};
  const PciNpu* usable = usable_npu(facts);
  if (usable == nullptr) {
    for (const char* name :
         {"IOMMU", "firmware", "driver", "device node", "contexts", "device heap", "memlock",
          "memlock of services", "this build", "XRT", "XRT plug-in"})
      checks.push_back(skipped(name, "no NPU"));
    checks.push_back(power_profile(facts));
    return checks;
  }
  const bool has_driver = !usable->driver.empty();
  const auto with_driver = [&](const char* name, Check (*check)(const SystemFacts&)) {
    return has_driver ? check(facts) : skipped(name, "needs the driver");
  };
  checks.push_back(iommu(facts));
  checks.push_back(firmware(facts, *usable));
  checks.push_back(driver(facts, *usable));
  checks.push_back(with_driver("device node", device_node));
  checks.push_back(with_driver("contexts", contexts));
  checks.push_back(with_driver("device heap", device_heap));
  for (const auto check : {memlock, services, xrt, xrt_plugin, this_build, power_profile})
    checks.push_back(check(facts));
  return checks;
}

namespace {

namespace fs = std::filesystem;

// The driver's "get info" request: DRM command 7 (0x40 + 7). Numbers and layouts are the kernel's
// interface, the same in both drivers.
struct GetInfo {
  uint32_t question;
  uint32_t buffer_size;
  uint64_t buffer;
};
constexpr unsigned long kGetInfo = _IOWR('d', 0x47, GetInfo);

struct PowerModeAnswer {
  static constexpr uint32_t kQuestion = 9;
  uint8_t mode;
  uint8_t padding[7];
};

struct ResourceAnswer {
  static constexpr uint32_t kQuestion = 12;  // since interface 0.4
  uint64_t most_mhz, most_tops, most_contexts, tops, contexts;
};

template <typename Answer>
std::optional<Answer> ask(int descriptor) {
  Answer answer = {};
  GetInfo request{Answer::kQuestion, sizeof(answer), reinterpret_cast<uint64_t>(&answer)};
  if (::ioctl(descriptor, kGetInfo, &request) != 0) return std::nullopt;
  return answer;
}

void ask_driver(int descriptor, AccelNode& node) {
  if (const auto answer = ask<PowerModeAnswer>(descriptor)) node.power_mode = answer->mode;
  const auto resources = ask<ResourceAnswer>(descriptor);
  if (resources && resources->most_contexts > 0)
    node.contexts = ContextCount{resources->contexts, resources->most_contexts};
}

// "render:x:993:" -> {993, "render"}; passwd has the number in the same place.
std::map<unsigned, std::string> names_by_id(const fs::path& file) {
  std::map<unsigned, std::string> names;
  std::istringstream lines(read_system_text(file).text);
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    unsigned number = 0;
    const char* begin = line.data() + second + 1;
    if (std::from_chars(begin, line.data() + line.size(), number).ec == std::errc())
      names.emplace(number, line.substr(0, first));
  }
  return names;
}

std::string name_in(const std::map<unsigned, std::string>& names, unsigned number) {
  const auto found = names.find(number);
  return found == names.end() ? std::to_string(number) : found->second;
}

// The effective ids: the second number of "Uid:" and "Gid:", and all of "Groups:".
std::vector<unsigned> ids_in(const std::string& status, const std::string& field) {
  std::istringstream lines(status);
  std::vector<unsigned> ids;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(field)) continue;
    std::istringstream numbers(line.substr(field.size()));
    for (unsigned id = 0; numbers >> id;) ids.push_back(id);
  }
  return ids;
}

AccelNode read_node(const fs::path& root, const AccelDevice& device, const Identity& identity) {
  const fs::path file = root / "dev/accel" / device.name;
  AccelNode node;
  node.path = "/dev/accel/" + device.name;
  node.driver = device.driver;

  struct stat status = {};
  if (::stat(file.c_str(), &status) == 0) {
    node.mode = status.st_mode & 07777;
    node.owner = name_in(identity.user_names, status.st_uid);
    node.group = name_in(identity.group_names, status.st_gid);
  }
  const int descriptor = ::open(file.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    node.open_error = errno;
    return node;
  }
  // To another maker's driver the request would mean something else.
  if (device.is_npu()) ask_driver(descriptor, node);
  ::close(descriptor);
  return node;
}

// "12 MiB" as DRM writes sizes, in KiB and MiB where they are whole; nothing where there is none.
std::optional<uint64_t> size_of(const std::string& fdinfo, const std::string& field) {
  std::istringstream lines(fdinfo);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(field)) continue;
    std::istringstream words(line.substr(field.size()));
    uint64_t size = 0;
    std::string unit;
    if (!(words >> size)) return std::nullopt;
    words >> unit;
    return size << (unit == "KiB" ? 10 : unit == "MiB" ? 20 : 0);
  }
  return std::nullopt;
}

std::optional<NpuHolder> holder_of(const fs::path& process, const fs::directory_iterator& files,
                                   const std::vector<AccelNode>& nodes) {
  std::optional<NpuHolder> holder;
  for (const fs::directory_entry& file : files) {
    std::error_code error;
    const std::string target = fs::read_symlink(file.path(), error).string();
    const auto node = std::find_if(nodes.begin(), nodes.end(), [&](const AccelNode& each) {
      return each.path == target && each.driver.starts_with("amdxdna");
    });
    if (error || node == nodes.end()) continue;
    if (!holder) holder.emplace().program = read_system_text(process / "comm").text;
    const auto heap = size_of(read_system_text(process / "fdinfo" / file.path().filename()).text,
                              node->driver + "-heap-alloc:");
    if (heap) holder->heap_bytes = holder->heap_bytes.value_or(0) + *heap;
  }
  return holder;
}

}  // namespace

Identity read_identity(const fs::path& root) {
  const std::string status = read_system_text(root / "proc/self/status").text;
  Identity identity;
  identity.group_names = names_by_id(root / "etc/group");
  identity.user_names = names_by_id(root / "etc/passwd");
  const auto users = ids_in(status, "Uid:");
  identity.is_root = users.size() > 1 && users[1] == 0;
  for (const char* field : {"Gid:", "Groups:"})
    for (unsigned id : ids_in(status, field)) {
      const std::string name = name_in(identity.group_names, id);
      if (std::find(identity.groups.begin(), identity.groups.end(), name) == identity.groups.end())
        identity.groups.push_back(name);
    }
  return identity;
}

std::vector<AccelNode> read_accel_nodes(const fs::path& root, const Identity& identity) {
  std::vector<AccelNode> nodes;
  for (const AccelDevice& device : read_accel_devices(root))
    nodes.push_back(read_node(root, device, identity));
  return nodes;
}

HolderFacts read_holders(const fs::path& root, const std::vector<AccelNode>& nodes) {
  HolderFacts facts;
  for (const std::string& name : names_in(root / "proc")) {
    int pid = 0;
    const auto number = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (number.ec != std::errc() || number.ptr != name.data() + name.size()) continue;
    std::error_code error;
    const fs::directory_iterator files(root / "proc" / name / "fd", error);
    facts.unreadable += error == std::errc::permission_denied;
    if (error) continue;
    if (auto holder = holder_of(root / "proc" / name, files, nodes)) {
      holder->pid = pid;
      facts.holders.push_back(std::move(*holder));
    }
  }
  return facts;
}

}  // namespace tyto
