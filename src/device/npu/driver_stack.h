// The software between a program and the NPU: kernel, driver, firmware, XRT. What a machine has of
// it, and what the images that MLIR-AIR builds need of it; docs/npu.md names the sources.
#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace tyto {

// Four numbers, those that are not given 0: "6.14.0-27-generic" is 6.14.0.0.
struct Version {
  unsigned major = 0, minor = 0, patch = 0, build = 0;
  auto operator<=>(const Version&) const = default;
};
Version version_of(std::string_view text);  // 0.0.0.0: it is none

// An NPU on the PCI bus.
struct PciNpu {
  std::string address;  // "0000:c5:00.1"
  uint16_t device = 0;  // vendor 0x1022's number for it
  uint8_t revision = 0;
  std::string driver;            // bound to it; empty: none
  std::string name;              // what the driver calls it
  std::string firmware_version;  // running; empty: the driver does not say
};
std::vector<PciNpu> read_pci_npus(const std::filesystem::path& root);
// The NPU of XDNA2 that is meant: by its address on the bus, with or without the domain, or by a
// part of what the driver calls it; empty: the first with a driver. Null where nothing was asked
// for and there is none; a usage Error lists what there is.
const PciNpu* choose_npu(const std::vector<PciNpu>& npus, const std::string& asked);
// What the cost model and --machine call the machine that has it; empty: none of those.
std::string_view machine_with(const PciNpu& npu);

// A node of the kernel's accelerators, of any maker. Its number is not the index that XRT counts
// devices by.
struct AccelDevice {
  std::string name;    // "accel0", below /dev/accel
  std::string driver;  // "amdxdna"; empty: unknown

  bool is_npu() const { return driver.starts_with("amdxdna"); }
};
std::vector<AccelDevice> read_accel_devices(const std::filesystem::path& root);

struct DriverStack {
  std::string kernel;             // release
  std::string module;             // the loaded one: "amdxdna" or "amdxdna_legacy"; empty: none
  std::string module_version;     // where it states one
  bool is_kernels_own = false;    // the module came with the kernel
  bool module_installed = false;  // a file below /lib/modules, or built in
  // What the driver counts its interface by; the drivers outside the kernel have said 1.0 whatever
  // they could. None: it was not asked, or did not answer.
  std::optional<Version> interface = {};
  std::string firmware;     // running; empty: the driver does not say
  std::string xrt_library;  // path of libxrt_coreutil.so.2; empty: not found
  std::string xrt_version;  // "2.26.0"; empty: unknown
};

// From files below `root`, and by asking the driver behind /dev/accel. Never throws for what a
// machine lacks.
DriverStack read_driver_stack(const std::filesystem::path& root);
// "amdxdna 2.20.0, firmware 1.1.2.64, XRT 2.26.0, Linux 6.14.0": what a measurement rests on.
std::string driver_text(const DriverStack& stack);

// Something older than ELF images of MLIR-AIR need.
struct VersionFault {
  std::string what;  // "XRT", "kernel", "driver" or "firmware"
  std::string found, needed;
  std::string fix;
  bool is_certain = true;  // false: the sources do not say whether it will do
};
std::vector<VersionFault> version_faults(const DriverStack& stack);

// Whether the device heap, where the code of runs lies, grows beyond its first 64 MiB; none: it is
// not established.
std::optional<bool> heap_grows(const DriverStack& stack);

// XRT's refusal at `where` in its own words, and after them what is too old on this machine.
Error refusal(const std::string& where, const std::string& words,
              const std::vector<VersionFault>& faults);

}  // namespace tyto
