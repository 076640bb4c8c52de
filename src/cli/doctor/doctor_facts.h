// What `tyto doctor` finds out about a machine, as plain values. Reading them and judging them
// (doctor_checks.h) are apart, so that judgements are tested against recorded machines.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace tyto {

struct CpuFacts {
  std::string model;
  unsigned threads = 0;
  std::vector<std::string> flags;  // as /proc/cpuinfo has them
};

struct MemoryFacts {
  uint64_t total_bytes = 0;
  uint64_t available_bytes = 0;
  std::optional<uint64_t> memlock_bytes;  // RLIMIT_MEMLOCK; none: unlimited
  bool memlock_known = false;
  bool may_lock_anything = false;  // CAP_IPC_LOCK
};

struct KernelFacts {
  std::string release;            // "6.14.0-27-generic"
  std::string module;             // the loaded one: "amdxdna" or "amdxdna_legacy"; empty: none
  std::string module_version;     // where the module states one
  bool module_installed = false;  // a file below /lib/modules, or built in
};

struct NpuFacts {
  std::string address;  // "0000:c5:00.1"
  uint16_t device = 0;  // of vendor 0x1022
  uint8_t revision = 0;
  std::string driver;            // bound to it; empty: none
  std::string name;              // what the driver calls it
  std::string firmware_version;  // running; empty: the driver does not say
};

struct AccelNode {
  std::string path;               // "/dev/accel/accel0"
  std::string driver;             // "amdxdna"; empty: unknown
  int open_error = 0;             // errno of opening it for reading and writing
  std::string owner, group;       // names, or numbers where they have none
  unsigned mode = 0;              // permission bits
  std::optional<int> power_mode;  // as the driver numbers them; none: it did not say
};

struct XrtFacts {
  std::string library;  // path of libxrt_coreutil.so.2; empty: not found
  std::string version;  // "2.26.0"; empty: unknown
  std::string plugin;   // path of libxrt_driver_xdna.so.2 beside it; empty: not there
  std::vector<std::string> searched;
};

struct PlatformFacts {
  std::string profile;  // /sys/firmware/acpi/platform_profile; empty: there is none
  std::vector<std::string> choices;
  std::optional<bool> on_mains;  // none: no power supply says
};

struct VulkanFacts {
  std::string loader;                // path of libvulkan.so.1; empty: not found
  std::vector<std::string> drivers;  // ICD descriptions, paths
  std::vector<std::string> render_nodes;
  bool enumerated = false;           // `devices` or `error` was asked of the loader
  std::vector<std::string> devices;  // "AMD Radeon 890M (integrated GPU, Vulkan 1.3)"
  std::string error;                 // why the loader did not list them
};

struct KernelCacheFacts {
  std::string folder;
  size_t images = 0;
  std::vector<std::string> problems;  // one line each
};

struct ModelFacts {
  std::string name;    // as -m has it; empty: not looked at
  bool named = false;  // with -m
  std::string error;   // why it does not open
  std::string hint;    // what its Error advises; may be empty
  std::string format;
  uint64_t weight_bytes = 0;
};

struct EnergyRailFacts {
  std::string label;   // "rapl package-0"
  std::string reason;  // why it cannot be read; empty: it can
};

struct DeviceProbe {
  std::string name;
  std::string description;
  bool is_virtual = false;
  std::string open_error;      // not empty: the rest was not tried
  std::string dispatch_error;  // what the device said instead of computing
  double worst_error = 0;      // of the computed values, against the largest expected one
  double allowed_error = 0;
  double gb_per_s = 0;  // of one large matrix and a vector; 0: not measured
  double expected_least = 0;
  double expected_most = 0;
};

struct SystemFacts {
  CpuFacts cpu;
  MemoryFacts memory;
  KernelFacts kernel;
  std::vector<NpuFacts> npus;
  std::vector<std::string> firmware_files;  // below /lib/firmware: "amdnpu/17f0_10/npu.sbin.zst"
  std::vector<AccelNode> nodes;
  std::vector<std::string> groups;  // of this process
  bool is_root = false;
  XrtFacts xrt;
  PlatformFacts platform;
  VulkanFacts vulkan;
  std::vector<EnergyRailFacts> rails;
  KernelCacheFacts kernel_cache;
  ModelFacts model;
  std::vector<DeviceProbe> devices;
};

// Everything that is read from files below `root`, a machine's / or a copy of the relevant parts of
// one. Leaves kernel_cache, model, devices and Vulkan's devices as they are: they are looked up
// elsewhere or tried out (doctor_probe.h). Never throws for what a machine lacks.
SystemFacts read_system_facts(const std::filesystem::path& root);

}  // namespace tyto
