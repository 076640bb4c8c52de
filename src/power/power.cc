#include "power/power.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <iterator>
#include <memory>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"

namespace tyto {

std::vector<RailReader> power_rails(const PowerSources& sources) {
  std::vector<RailReader> rails;
  const auto add = [&rails](std::vector<RailReader> more) {
    std::move(more.begin(), more.end(), std::back_inserter(rails));
  };
  add(rapl_rails(sources.root));
  add(amdgpu_rails(sources.root));
  add(amdxdna_rails(sources.root));
  if (!sources.nvml.empty()) add(nvml_rails(sources.nvml));
  return rails;
}

// AMD's hwmon rails. amdgpu: power1_average, or power1_input where the chip has no average; on an
// APU the label is PPT and the rail is the whole package, not the GPU. amdxdna: power1_input,
// labelled NPU_power, in drivers since May 2026 where amd_pmf (Linux 7.0) and the BIOS report it.

namespace {

namespace fs = std::filesystem;

constexpr double kSensorSeconds = 0.05;  // the power controller averages over tens of milliseconds

// The PCI address of what a hwmon folder belongs to: two GPUs have the same labels.
std::string address_of(const fs::path& hwmon) {
  std::error_code error;
  const fs::path target = fs::read_symlink(hwmon / "device", error);
  return error ? "" : " " + target.filename().string();
}

RailReader hwmon_reader(const fs::path& hwmon, const std::string& source,
                        const std::string& value_file) {
  const std::string label = read_system_text(hwmon / "power1_label").text;
  PowerRail rail;
  rail.name = (label.empty() ? "power1" : label) + address_of(hwmon);
  rail.source = source;
  rail.kind = RailKind::sampled_power;
  rail.update_seconds = kSensorSeconds;
  return micro_reader(std::move(rail), hwmon / value_file);
}

bool npu_has_driver(const fs::path& root) {
  for (const char* driver : {"amdxdna", "amdxdna_legacy"})
    for (const std::string& name : names_in(root / "sys/bus/pci/drivers" / driver))
      if (name.find(':') != std::string::npos) return true;  // a PCI address
  return false;
}

}  // namespace

std::vector<RailReader> amdgpu_rails(const fs::path& root) {
  std::vector<RailReader> rails;
  for (const fs::path& hwmon : hwmon_folders(root, "amdgpu")) {
    std::error_code ignored;
    const bool averages = fs::exists(hwmon / "power1_average", ignored);
    rails.push_back(hwmon_reader(hwmon, "amdgpu", averages ? "power1_average" : "power1_input"));
  }
  if (rails.empty())
    rails.push_back(absent_rail("PPT", "amdgpu", RailKind::sampled_power,
                                "no amdgpu driver in /sys/class/hwmon"));
  return rails;
}

std::vector<RailReader> amdxdna_rails(const fs::path& root) {
  std::vector<RailReader> rails;
  for (const fs::path& hwmon : hwmon_folders(root, "amdxdna"))
    rails.push_back(hwmon_reader(hwmon, "amdxdna", "power1_input"));
  if (!rails.empty()) return rails;
  const char* reason =
      npu_has_driver(root)
          ? "this NPU's driver has no power sensor: it takes Linux 7.0, an amdxdna "
            "of May 2026 and a BIOS with AMD PMF"
          : "no NPU with an amdxdna driver";
  return {absent_rail("NPU_power", "amdxdna", RailKind::sampled_power, reason)};
}

// NVIDIA's management library, loaded when energy is asked for: the driver brings it, and
// machines without one have none. The energy counter (Volta and newer) is in millijoules since the
// driver was loaded; older boards have power only.

namespace {

constexpr int kSuccess = 0;
// Boards bring both up to date every 20 to 100 ms, and newer ones average power over a second.
constexpr double kCounterSeconds = 0.1;
constexpr double kPowerSeconds = 0.1;

using Handle = void*;

struct Nvml {
  void* library = nullptr;
  bool initialised = false;
  int (*shutdown)() = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*name)(Handle, char*, unsigned) = nullptr;
  int (*total_energy)(Handle, unsigned long long*) = nullptr;  // absent from very old libraries
  int (*power)(Handle, unsigned*) = nullptr;

  Nvml() = default;
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml() {
    if (initialised) shutdown();
    if (library != nullptr) ::dlclose(library);
  }

  template <typename Function>
  bool find(Function& function, const char* symbol) {
    function = reinterpret_cast<Function>(::dlsym(library, symbol));
    return function != nullptr;
  }

  std::string failure(const char* call, int code) const {
    return fmt::format("{}: {}", call, error_string(code));
  }
};

RailReader board_reader(const std::shared_ptr<Nvml>& nvml, Handle board, unsigned index) {
  std::array<char, 97> name = {};
  if (nvml->name(board, name.data(), name.size() - 1) != kSuccess) name = {"GPU"};
  RailReader reader;
  reader.rail.name = fmt::format("GPU {} {}", index, name.data());
  reader.rail.source = "nvml";

  unsigned long long millijoules = 0;
  if (nvml->total_energy != nullptr && nvml->total_energy(board, &millijoules) == kSuccess) {
    reader.rail.kind = RailKind::energy_counter;
    reader.rail.path = "nvmlDeviceGetTotalEnergyConsumption";
    reader.rail.update_seconds = kCounterSeconds;
    reader.read = [nvml, board]() -> RailReading {
      unsigned long long value = 0;
      const int code = nvml->total_energy(board, &value);
      if (code != kSuccess) return {0, nvml->failure("nvmlDeviceGetTotalEnergyConsumption", code)};
      return {static_cast<double>(value) * 1e-3, ""};
    };
    return reader;
  }
  reader.rail.kind = RailKind::sampled_power;
  reader.rail.path = "nvmlDeviceGetPowerUsage";
  reader.rail.update_seconds = kPowerSeconds;
  reader.read = [nvml, board]() -> RailReading {
    unsigned milliwatts = 0;
    const int code = nvml->power(board, &milliwatts);
    if (code != kSuccess) return {0, nvml->failure("nvmlDeviceGetPowerUsage", code)};
    return {static_cast<double>(milliwatts) * 1e-3, ""};
  };
  reader.unavailable = reader.read().error;
  return reader;
}

std::vector<RailReader> unavailable(const std::string& reason) {
  return {absent_rail("GPU", "nvml", RailKind::energy_counter, reason)};
}

}  // namespace

std::vector<RailReader> nvml_rails(const std::string& library) {
  const auto nvml = std::make_shared<Nvml>();  // shared by the readers of all boards
  nvml->library = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (nvml->library == nullptr)
    return unavailable(fmt::format("no {}, so no NVIDIA driver", library));

  int (*init)() = nullptr;
  int (*count_boards)(unsigned*) = nullptr;
  int (*handle_of)(unsigned, Handle*) = nullptr;
  const bool complete = nvml->find(init, "nvmlInit_v2") &&
                        nvml->find(nvml->shutdown, "nvmlShutdown") &&
                        nvml->find(nvml->error_string, "nvmlErrorString") &&
                        nvml->find(count_boards, "nvmlDeviceGetCount_v2") &&
                        nvml->find(handle_of, "nvmlDeviceGetHandleByIndex_v2") &&
                        nvml->find(nvml->name, "nvmlDeviceGetName") &&
                        nvml->find(nvml->power, "nvmlDeviceGetPowerUsage");
  if (!complete) return unavailable(fmt::format("{} lacks a function Tyto needs", library));
  nvml->find(nvml->total_energy, "nvmlDeviceGetTotalEnergyConsumption");

  if (const int code = init(); code != kSuccess)
    return unavailable(nvml->failure("nvmlInit", code));
  nvml->initialised = true;
  unsigned boards = 0;
  if (const int code = count_boards(&boards); code != kSuccess)
    return unavailable(nvml->failure("nvmlDeviceGetCount", code));

  std::vector<RailReader> rails;
  for (unsigned i = 0; i < boards; ++i) {
    Handle board = nullptr;
    const int code = handle_of(i, &board);
    rails.push_back(code == kSuccess
                        ? board_reader(nvml, board, i)
                        : absent_rail(fmt::format("GPU {}", i), "nvml", RailKind::energy_counter,
                                      nvml->failure("nvmlDeviceGetHandleByIndex", code)));
  }
  return rails.empty() ? unavailable("NVIDIA's driver sees no GPU") : rails;
}

// RAPL through powercap: /sys/class/powercap/intel-rapl:0 is a package (on AMD processors too),
// intel-rapl:0:0 a part of it. The counter is in microjoules, is brought up to date about every
// millisecond, and starts again from 0 at max_energy_range_uj: 65 kJ, which is three minutes of a
// server's package. Since Linux 5.10 only root may read it.

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kZonePrefix = "intel-rapl:";

// "intel-rapl:0:1" is "package-0/dram"; the parent's name comes from "intel-rapl:0".
std::string zone_name(const fs::path& zones, const std::string& zone) {
  const std::string own = read_system_text(zones / zone / "name").text;
  const size_t last = zone.rfind(':');
  if (last <= kZonePrefix.size()) return own.empty() ? zone : own;
  return zone_name(zones, zone.substr(0, last)) + "/" + (own.empty() ? zone : own);
}

RailReader zone_reader(const fs::path& zones, const std::string& zone) {
  PowerRail rail;
  rail.name = zone_name(zones, zone);
  rail.source = "rapl";
  rail.kind = RailKind::energy_counter;
  rail.range_joules = read_micro(zones / zone / "max_energy_range_uj").value;
  rail.update_seconds = 0.001;
  return micro_reader(std::move(rail), zones / zone / "energy_uj");
}

}  // namespace

std::vector<RailReader> rapl_rails(const fs::path& root) {
  const fs::path zones = root / "sys/class/powercap";
  std::vector<RailReader> rails;
  // intel-rapl-mmio: is the same package again, read another way.
  for (const std::string& zone : names_in(zones))
    if (zone.starts_with(kZonePrefix)) rails.push_back(zone_reader(zones, zone));
  if (rails.empty())
    rails.push_back(absent_rail("package", "rapl", RailKind::energy_counter,
                                "the kernel offers no RAPL zone in /sys/class/powercap"));
  return rails;
}

namespace fs = std::filesystem;

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    names.push_back(at->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

RailReading read_micro(const fs::path& file) {
  const SystemText read = read_system_text(file);
  if (read.error == EACCES || read.error == EPERM)
    return {0, fmt::format("permission denied: {} is for root alone", file.string())};
  if (read.error != 0) return {0, fmt::format("{}: {}", file.string(), std::strerror(read.error))};
  uint64_t micro = 0;
  const char* end = read.text.data() + read.text.size();
  const auto [stopped_at, fault] = std::from_chars(read.text.data(), end, micro);
  if (stopped_at != end || fault != std::errc())
    return {0, fmt::format("{} is not a number", file.string())};
  // A driver without a value fills its register with ones and scales that.
  if (micro == UINT64_MAX || micro == UINT32_MAX || micro == UINT64_C(1000) * UINT32_MAX)
    return {0, fmt::format("{} has no value", file.string())};
  return {static_cast<double>(micro) * 1e-6, ""};
}

RailReader micro_reader(PowerRail rail, const fs::path& file) {
  rail.path = file.string();
  return {std::move(rail), read_micro(file).error, [file] { return read_micro(file); }};
}

RailReader absent_rail(const std::string& name, const std::string& source, RailKind kind,
                       const std::string& reason) {
  RailReader reader;
  reader.rail.name = name;
  reader.rail.source = source;
  reader.rail.kind = kind;
  reader.unavailable = reason;
  return reader;
}

std::vector<fs::path> hwmon_folders(const fs::path& root, const std::string& driver) {
  std::vector<fs::path> folders;
  const fs::path all = root / "sys/class/hwmon";
  for (const std::string& name : names_in(all))
    if (read_system_text(all / name / "name").text == driver) folders.push_back(all / name);
  return folders;
}

}  // namespace tyto
