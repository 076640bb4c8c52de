#include "device/npu/driver_stack.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/environment.h"
#include "base/file.h"
#include "base/spelling.h"
#include "power/power.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;

// ELFs with several kernels ("group ELF") came into XRT with b49296e986 of 2025-06-30.
constexpr Version kXrt{2, 20, 115};
// ERT_START_NPU_PREEMPT_ELF, which XRT sends such ELFs with, is interface 0.6 (3a0ff7b98af4, pulled
// for Linux 6.19). A command that is sent alone gets there since c68a6af400ca, in Linux 7.0.
constexpr Version kInterface{0, 6};
constexpr Version kKernel{6, 19}, kKernelForSingles{7, 0};
// The oldest release known to speak protocol 6.12. The driver's newer set of messages, without
// which it refuses the command, wants 6.15; the oldest release with that is not established.
constexpr Version kFirmware{1, 0, 20, 31}, kFirmwareOfDriver{1, 1, 2, 64};

// Growing came into xdna-driver in April 2026 (b9d18f04), between these two.
constexpr Version kBeforeGrowth{0, 9}, kGrowth{0, 11};

constexpr const char* kNewKernel =
    "install Linux 7.0 or newer, or the driver of github.com/amd/xdna-driver";

constexpr unsigned kXdna1 = 0x1502, kXdna2 = 0x17f0;  // PCI devices

std::string text_of(const fs::path& path) {
  return read_system_text(path).text;
}

std::string driver_of(const fs::path& device) {
  std::error_code error;
  const fs::path driver = fs::read_symlink(device / "driver", error);
  return error ? "" : driver.filename().string();
}

unsigned hexadecimal(const std::string& text) {
  unsigned value = 0;
  const size_t start = text.starts_with("0x") ? 2 : 0;
  std::from_chars(text.data() + start, text.data() + text.size(), value, 16);
  return value;
}

// amdxdna is the driver in the kernel since 6.14 and the newer one outside it; amdxdna_legacy the
// older one outside it.
constexpr std::array<const char*, 2> kModules = {"amdxdna", "amdxdna_legacy"};

bool has_module(const fs::path& folder) {
  for (const std::string& name : names_in(folder))
    if (name.starts_with("amdxdna")) return true;
  return false;
}

void read_module(const fs::path& root, DriverStack& stack) {
  for (const char* module : kModules) {
    if (!stack.module.empty() || !is_there(root / "sys/module" / module)) continue;
    stack.module = module;
    stack.module_version = text_of(root / "sys/module" / module / "version");
  }
  constexpr size_t kIndexLimit = 16 << 20;
  const fs::path modules = root / "lib/modules" / stack.kernel;
  bool is_added = false;
  for (const char* folder : {"updates/dkms", "extra", "updates", "misc"})
    is_added |= has_module(modules / folder);
  bool is_brought = has_module(modules / "kernel/drivers/accel/amdxdna");
  for (const char* index : {"modules.builtin", "modules.dep"})
    is_brought |=
        read_system_text(modules / index, kIndexLimit).text.find("accel/amdxdna/amdxdna") !=
        std::string::npos;
  stack.module_installed = is_added || is_brought;
  stack.is_kernels_own = is_brought && !is_added;
}

// The request that every driver of the kernel's graphics and accelerator subsystem answers; a
// length of 0 asks for none of the texts.
struct DrmVersion {
  int major, minor, patch;
  struct {
    size_t length;
    char* text;
  } name, date, description;
};
constexpr unsigned long kDrmVersion = _IOWR('d', 0x00, DrmVersion);

std::optional<Version> interface_of(const fs::path& node) {
  const int descriptor = ::open(node.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return std::nullopt;
  DrmVersion answer = {};
  const int result = ::ioctl(descriptor, kDrmVersion, &answer);
  ::close(descriptor);
  if (result != 0) return std::nullopt;
  return Version{static_cast<unsigned>(answer.major), static_cast<unsigned>(answer.minor)};
}

void read_xrt(const fs::path& root, DriverStack& stack) {
  constexpr std::string_view kLibrary = "libxrt_coreutil.so.2";
  stack.xrt_library = find_library(root, library_folders(), std::string(kLibrary));
  if (stack.xrt_library.empty()) return;
  const fs::path folder = fs::path(stack.xrt_library).parent_path();
  for (const std::string& name : names_in(root / folder.relative_path()))
    if (name.starts_with(std::string(kLibrary) + "."))
      stack.xrt_version = name.substr(kLibrary.size() - 1);  // "2.26.0"
}

std::optional<VersionFault> xrt_fault(const DriverStack& stack) {
  if (stack.xrt_version.empty() || version_of(stack.xrt_version) >= kXrt) return std::nullopt;
  return VersionFault{
      "XRT", "XRT " + stack.xrt_version, "2.20.115",
      "install XRT 2.20.115 or newer, and its plug-in; 2.20 built from source calls "
      "itself 2.20.0: take 2.21"};
}

// The kernel's own driver is as new as the kernel, unless a distribution put a newer one there:
// what the driver says of itself counts more.
std::optional<VersionFault> driver_fault(const DriverStack& stack) {
  if (stack.module.empty()) return std::nullopt;
  const Version kernel = version_of(stack.kernel);
  const bool too_old =
      stack.interface ? *stack.interface < kInterface : stack.is_kernels_own && kernel < kKernel;
  const std::string of_kernel = "the amdxdna of Linux " + stack.kernel;
  if (too_old && stack.is_kernels_own) return VersionFault{"kernel", of_kernel, "6.19", kNewKernel};
  if (too_old)
    return VersionFault{"driver",
                        fmt::format("{} with interface {}.{}", stack.module, stack.interface->major,
                                    stack.interface->minor),
                        "interface 0.6", kNewKernel};
  const bool is_newer = stack.interface && *stack.interface > kInterface;
  if (stack.is_kernels_own && !is_newer && kernel >= kKernel && kernel < kKernelForSingles)
    return VersionFault{
        "kernel", of_kernel, "7.0, or its option force_cmdlist",
        "echo 'options amdxdna force_cmdlist=1' | sudo tee /etc/modprobe.d/amdxdna.conf, then "
        "reboot; or install Linux 7.0",
        false};
  return std::nullopt;
}

std::optional<VersionFault> firmware_fault(const DriverStack& stack) {
  const Version firmware = version_of(stack.firmware);
  if (stack.firmware.empty() || firmware >= kFirmwareOfDriver) return std::nullopt;
  const char* fix = "update your distribution's firmware package (linux-firmware), then reboot";
  if (firmware < kFirmware)
    return VersionFault{"firmware", "firmware " + stack.firmware, "1.0.20.31", fix};
  return VersionFault{"firmware", "firmware " + stack.firmware,
                      "protocol 6.15; 1.1.2.64 is what xdna-driver installs", fix, false};
}

}  // namespace

Version version_of(std::string_view text) {
  Version version;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (unsigned* part : {&version.major, &version.minor, &version.patch, &version.build}) {
    const auto number = std::from_chars(at, end, *part);
    if (number.ec != std::errc()) break;
    at = number.ptr;
    if (at == end || *at != '.') break;
    ++at;
  }
  return version;
}

std::vector<PciNpu> read_pci_npus(const fs::path& root) {
  constexpr unsigned kAmd = 0x1022;
  constexpr unsigned kSignalProcessing = 0x1180;  // class code of the NPUs
  const fs::path devices = root / "sys/bus/pci/devices";
  std::vector<PciNpu> npus;
  for (const std::string& address : names_in(devices)) {
    const fs::path folder = devices / address;
    if (hexadecimal(text_of(folder / "vendor")) != kAmd) continue;
    const auto id = static_cast<uint16_t>(hexadecimal(text_of(folder / "device")));
    const bool is_npu_class = hexadecimal(text_of(folder / "class")) >> 8 == kSignalProcessing;
    const bool known = id == kXdna1 || id == kXdna2;
    const bool newer = is_npu_class && ((id & 0xfff0) == 0x17f0 || (id & 0xfff0) == 0x1b00);
    if (!known && !newer) continue;
    PciNpu npu;
    npu.address = address;
    npu.device = id;
    npu.revision = static_cast<uint8_t>(hexadecimal(text_of(folder / "revision")));
    npu.driver = driver_of(folder);
    npu.name = text_of(folder / "vbnv");
    npu.firmware_version = text_of(folder / "fw_version");
    npus.push_back(npu);
  }
  return npus;
}

const PciNpu* choose_npu(const std::vector<PciNpu>& npus, const std::string& asked) {
  std::vector<const PciNpu*> usable;
  for (const PciNpu& npu : npus)
    if (npu.device == kXdna2) usable.push_back(&npu);
  std::stable_partition(usable.begin(), usable.end(),
                        [](const PciNpu* npu) { return !npu->driver.empty(); });
  if (asked.empty()) return usable.empty() ? nullptr : usable.front();
  for (const PciNpu* npu : usable)
    if (npu->address == asked || npu->address.ends_with(":" + asked)) return npu;
  std::erase_if(usable,
                [&](const PciNpu* npu) { return npu->name.find(asked) == std::string::npos; });
  if (usable.size() == 1) return usable.front();
  const std::string there = joined(npus, ", ", [](const PciNpu& npu) {
    return npu.address + (npu.name.empty() ? "" : " (" + npu.name + ")");
  });
  throw Error(ErrorCode::usage, "--npu-device " + asked,
              usable.empty() ? "no such NPU of XDNA2" : "more than one NPU has that in its name",
              there.empty() ? "there is no NPU on the PCI bus" : "there are " + there);
}

std::string_view machine_with(const PciNpu& npu) {
  if (npu.device != kXdna2) return "";
  return npu.revision == 0x10   ? "strix"
         : npu.revision == 0x11 ? "strix-halo"
         : npu.revision == 0x20 ? "krackan"
                                : "";
}

std::vector<AccelDevice> read_accel_devices(const fs::path& root) {
  std::vector<AccelDevice> devices;
  for (const std::string& name : names_in(root / "dev/accel"))
    if (name.starts_with("accel"))
      devices.push_back({name, driver_of(root / "sys/class/accel" / name / "device")});
  return devices;
}

DriverStack read_driver_stack(const fs::path& root) {
  DriverStack stack;
  stack.kernel = text_of(root / "proc/sys/kernel/osrelease");
  read_module(root, stack);
  for (const AccelDevice& device : read_accel_devices(root))
    if (device.is_npu() && !stack.interface)
      stack.interface = interface_of(root / "dev/accel" / device.name);
  for (const PciNpu& npu : read_pci_npus(root))
    if (npu.device == kXdna2 && stack.firmware.empty()) stack.firmware = npu.firmware_version;
  read_xrt(root, stack);
  return stack;
}

std::string driver_text(const DriverStack& stack) {
  const auto known = [](const std::string& text) { return text.empty() ? "unknown" : text; };
  return fmt::format("{} {}, firmware {}, XRT {}, Linux {}", known(stack.module),
                     stack.is_kernels_own ? "of the kernel" : known(stack.module_version),
                     known(stack.firmware), known(stack.xrt_version), known(stack.kernel));
}

std::vector<VersionFault> version_faults(const DriverStack& stack) {
  std::vector<VersionFault> faults;
  for (const auto& fault : {driver_fault(stack), firmware_fault(stack), xrt_fault(stack)})
    if (fault) faults.push_back(*fault);
  return faults;
}

std::optional<bool> heap_grows(const DriverStack& stack) {
  if (!stack.interface) return std::nullopt;
  const Version interface = *stack.interface;
  if (interface.major > 0 || interface < kBeforeGrowth) return false;
  return interface < kGrowth ? std::nullopt : std::optional(true);
}

Error refusal(const std::string& where, const std::string& words,
              const std::vector<VersionFault>& faults) {
  if (faults.empty()) return {ErrorCode::device, where, words};
  const auto named = [](const VersionFault& fault) {
    return fmt::format("{} ({} {})", fault.found,
                       fault.is_certain ? "needed:" : "perhaps needed:", fault.needed);
  };
  return {ErrorCode::device, where,
          fmt::format("{}; too old here: {}", words, joined(faults, ", ", named)),
          faults.front().fix};
}

}  // namespace tyto
