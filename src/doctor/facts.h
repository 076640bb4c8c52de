#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "device/npu/driver_stack.h"
#include "device/npu/formats/memory_plan.h"

namespace tyto {

// What `tyto doctor` finds out about a machine, as plain values. Reading them and judging them
// (checks.h) are apart, so that judgements are tested against recorded machines.

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

// Contexts that the driver hands out, to all processes together.
struct ContextCount {
  uint64_t taken = 0, most = 0;
};

// A node of the kernel's accelerators, of any maker.
struct AccelNode {
  std::string path;          // "/dev/accel/accel0"
  std::string driver;        // "amdxdna"; empty: unknown
  int open_error = 0;        // errno of opening it for reading and writing
  std::string owner, group;  // names, or numbers where they have none
  unsigned mode = 0;         // permission bits
  // As an NPU's driver answers; none: it did not say.
  std::optional<int> power_mode;  // as the driver numbers them
  std::optional<ContextCount> contexts = {};
};

// A process that has an NPU's node open.
struct NpuHolder {
  int pid = 0;
  std::string program;
  std::optional<uint64_t> heap_bytes;  // the device heap's; none: the driver does not say
};

struct HolderFacts {
  std::vector<NpuHolder> holders;
  size_t unreadable = 0;  // processes of others that may not be looked into
};

// RLIMIT_MEMLOCK as systemd would set it.
struct MemlockSetting {
  std::string file;               // that says so; empty: none does
  std::optional<uint64_t> bytes;  // none: unlimited
};

// Without an IOMMU the driver gets no address space of the process (PASID) to run in.
struct IommuFacts {
  std::optional<size_t> units;  // below /sys/class/iommu; none: there is no such folder
  std::string turned_off;       // what the kernel's command line says so with; empty: nothing
};

struct ServiceFacts {
  std::string unit;  // "tyto.service", where it is installed
  MemlockSetting unit_limit;
  MemlockSetting system_default, user_default;  // for services that say nothing themselves
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
  bool broke_its_process = false;    // it crashed, ended the process, or gave no answer
};

struct KernelCacheFacts {
  std::string folder;
  size_t images = 0;
  size_t elfs = 0, xclbins = 0;       // kernels of each form, for a real NPU
  std::vector<std::string> problems;  // one line each
  // Among a real NPU's images: the model whose runs hold most of the device heap.
  std::string largest_model;  // empty: there are none
  HeapPlan heap = {};
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
  std::string untried;         // why nothing was computed on a device that opens; empty: it was
  std::string computed;        // "rmsnorm and matmul", "llama-3.2-1b/lm_head_gemv"
  std::string dispatch_error;  // what the device said instead of computing
  double worst_error = 0;      // the computed values', against the largest expected one
  double allowed_error = 0;
  double gb_per_s = 0;  // for one large matrix and a vector; 0: not measured
  double expected_least = 0;
  double expected_most = 0;
};

// What --device auto goes by.
struct CalibrationFacts {
  std::string measured;  // what, when and with which models; empty: nothing that is of use
  std::string problem;   // with a file that is there and ignored; empty: none
};

struct SystemFacts {
  CpuFacts cpu;
  MemoryFacts memory;
  DriverStack stack;
  std::vector<PciNpu> npus;
  std::vector<std::string> firmware_files;  // below /lib/firmware: "amdnpu/17f0_10/npu.sbin.zst"
  std::vector<AccelNode> nodes;
  HolderFacts holders;
  IommuFacts iommu;
  std::vector<std::string> groups;  // the groups that this process is in
  bool is_root = false;
  std::string xrt_plugin;  // path of libxrt_driver_xdna.so.2 beside XRT; empty: not there
  std::optional<bool> build_has_xrt;  // this program's; none: another machine is examined
  ServiceFacts services;
  PlatformFacts platform;
  VulkanFacts vulkan;
  std::vector<EnergyRailFacts> rails;
  KernelCacheFacts kernel_cache;
  ModelFacts model;
  std::vector<DeviceProbe> devices;
  std::optional<CalibrationFacts> calibration;  // none: another machine is examined
};

// Everything that is read from files below `root`, a machine's / or a copy of the relevant parts of
// one. Leaves build_has_xrt, kernel_cache, model, devices and Vulkan's devices as they are: they
// are looked up elsewhere or tried out (probe.h). Never throws for what a machine lacks.
SystemFacts read_system_facts(const std::filesystem::path& root);

// What a file that is sent to others must not hold: names of people, machines and their folders.

struct PrivateNames {
  std::vector<std::string> folders;  // whole paths; the longest first
  std::vector<std::string> words;    // names of the user and of the host, in any case
};

// The names of this machine and of the user who runs the program; `folders` are further private
// ones.
PrivateNames private_names(const std::vector<std::filesystem::path>& folders);

// "…" stands for a private folder and for every folder that is not the system's; "***" for names.
std::string without_private(std::string_view text, const PrivateNames& names);

// How much memory systemd lets services lock.

// From unit files and the managers' own files below `root`: what a service would get that is
// started now, not what one that runs already has.
ServiceFacts read_services(const std::filesystem::path& root);

}  // namespace tyto
