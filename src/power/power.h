// Power rails: what this machine says about the energy it uses, and where it says so. A source that
// is not there, or may not be read, is a rail with the reason: no reading is ever made up.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
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

// What the readers of power files in /sys share.

// Names in a folder, sorted; none when it cannot be listed.
std::vector<std::string> names_in(const std::filesystem::path& folder);

// A whole number of micro-units, as joules or watts.
RailReading read_micro(const std::filesystem::path& file);

// The reader of one file, unavailable with the reason when the file cannot be read now.
RailReader micro_reader(PowerRail rail, const std::filesystem::path& file);

// A source that has nothing to read.
RailReader absent_rail(const std::string& name, const std::string& source, RailKind kind,
                       const std::string& reason);

// The folders of /sys/class/hwmon whose driver has this name.
std::vector<std::filesystem::path> hwmon_folders(const std::filesystem::path& root,
                                                 const std::string& driver);

}  // namespace tyto
