// Power rails: what this machine says about the energy it uses, and where it says so. A source that
// is not there, or may not be read, is a rail with the reason: no reading is ever made up.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace tyto {

enum class RailKind : uint8_t {
  energy_counter,  // the hardware adds up joules
  sampled_power,   // the hardware says watts, we add up
};

struct PowerRail {
  std::string name;    // "package-0", "package-0/core", "PPT 0000:c5:00.0", "NPU_power"
  std::string source;  // "rapl", "amdgpu", "amdxdna", "nvml"
  RailKind kind = RailKind::energy_counter;
  std::string path;           // the file or function it is read from
  double range_joules = 0;    // where a counter starts again from 0; 0: it does not
  double update_seconds = 0;  // how often the hardware brings the value up to date

  std::string label() const { return source + " " + name; }
};

struct RailReading {
  double value = 0;   // joules so far of a counter, watts of a sampled rail
  std::string error;  // empty: `value` is good
};

struct RailReader {
  PowerRail rail;
  std::string unavailable;  // why it cannot be read; empty: it can
  std::function<RailReading()> read = {};
};

// Where the readers look. Tests give a folder that looks like a machine.
struct PowerSources {
  std::filesystem::path root = "/";
  std::string nvml = "libnvidia-ml.so.1";  // for dlopen; empty: not looked for
};

// Every rail of every source, the unavailable ones included; each source has at least one.
// Rails overlap (a package holds its cores, its NPU and its iGPU): they must not be added up.
std::vector<RailReader> power_rails(const PowerSources& sources = {});

std::vector<RailReader> rapl_rails(const std::filesystem::path& root);     // powercap
std::vector<RailReader> amdgpu_rails(const std::filesystem::path& root);   // hwmon
std::vector<RailReader> amdxdna_rails(const std::filesystem::path& root);  // hwmon
std::vector<RailReader> nvml_rails(const std::string& library);

}  // namespace tyto
