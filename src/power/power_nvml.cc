// NVIDIA's management library, loaded when somebody asks for energy: the driver brings it, and
// machines without one have none. The energy counter (Volta and newer) is in millijoules since the
// driver was loaded; older boards have power only.
#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <memory>

#include "power/power_sysfs.h"

namespace tyto {
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

}  // namespace tyto
